"""Models from the hub: a small hub on this machine, one that cannot be reached, and the local hub cache."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants

from models import tiny
from models.conftest import HUB_NAME as NAME
from models.conftest import Hub, Library
from wordsway.errors import InputError, MissingExtra
from wordsway.models import embedding_dimension, review_contexts, vocabulary_embeddings

FILES = ("config.json", "tokenizer.json", "model.safetensors")


def _refusal(model: str = NAME) -> str:
    with pytest.raises(InputError) as caught:
        review_contexts(2, 10, 4, model=model)
    message = str(caught.value)
    assert "\n" not in message
    assert model in message
    return message


# What is fetched


def test_a_model_from_the_hub_is_the_model_in_a_folder(library: Library, hub: Hub, bert: tuple[Path, Any]) -> None:
    ours = review_contexts(40, 30, tiny.DIMENSION, model=NAME)
    folder = review_contexts(40, 30, tiny.DIMENSION, model=str(bert[0]))
    assert torch.equal(ours[0], folder[0])
    assert torch.equal(ours[1], folder[1])
    assert torch.equal(vocabulary_embeddings(4, model=NAME)[0], vocabulary_embeddings(4, model=str(bert[0]))[0])


def test_only_the_three_files_are_fetched_and_only_once(library: Library, hub: Hub) -> None:
    assert embedding_dimension(NAME) == tiny.DIMENSION
    assert {question.split("/")[-1] for question in hub.asked} == {"config.json"}
    first = review_contexts(4, 30, 8, model=NAME)[0]
    fetched = [question for question in hub.asked if question.startswith("GET")]
    assert sorted(question.split("/")[-1] for question in fetched) == sorted(FILES)
    count = len(hub.asked)
    assert torch.equal(first, review_contexts(4, 30, 8, model=NAME)[0])
    assert len(hub.asked) == count


def test_the_three_files_are_of_one_commit_also_where_the_hub_has_moved_on(library: Library, hub: Hub) -> None:
    embedding_dimension(NAME)
    hub.commit = "2" * 40
    review_contexts(2, 30, 8, model=NAME)
    later = [question for question in hub.asked if "config.json" not in question]
    assert len(later) > 2
    assert all(f"/resolve/{'1' * 40}/" in question for question in later)


def test_what_is_cached_needs_no_hub(library: Library, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = review_contexts(4, 30, 8, model=NAME)[0]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert torch.equal(first, review_contexts(4, 30, 8, model=NAME)[0])
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.refusal = (500, "")
    assert torch.equal(first, review_contexts(4, 30, 8, model=NAME)[0])


def test_a_folder_comes_before_the_hub(
    library: Library, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(hub.folder, NAME)
    assert embedding_dimension(NAME) == tiny.DIMENSION
    assert hub.asked == []


# What is refused


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_the_hub_does_not_have_is_named(library: Library, hub: Hub, name: str) -> None:
    (hub.folder / name).unlink()
    message = _refusal()
    assert message.startswith(f"the model {NAME} must have {name} on the hub, got no such file (pickled weights")
    assert message.endswith("choose another model, or give a local folder")


def test_a_damaged_file_in_the_hub_cache_is_refused_with_the_folder_to_remove(library: Library, hub: Hub) -> None:
    review_contexts(2, 10, 4, model=NAME)
    (path,) = hub.cache.rglob("model.safetensors")
    path.write_bytes(path.read_bytes()[:-9])
    (folder,) = hub.cache.glob("models--*")
    with pytest.raises(InputError) as caught:
        review_contexts(2, 10, 4, model=NAME)
    assert str(caught.value).startswith(f"{path} must hold the weights of the bert encoder")
    assert str(caught.value).endswith(f": remove the folder {folder} to have it fetched again")
    shutil.rmtree(folder)
    review_contexts(2, 10, 4, model=NAME)


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((403, "GatedRepo"), "must be open to you, got a gated repository: ask for access on its page and log in, or"),
        ((404, "RepoNotFound"), "must be on the hub, got no such repository or a private one: check the name, or give"),
        ((404, "RevisionNotFound"), "on a hub that can be reached, got 404 Client Error"),
        ((500, ""), "on a hub that can be reached, got Server error '500 Internal Server Error'"),
        ((401, ""), "on a hub that can be reached, got Client error '401 Unauthorized'"),
    ],
)
def test_a_hub_that_refuses_is_asked_once_and_reported_in_one_line(
    hub: Hub, refusal: tuple[int, str], message: str
) -> None:
    hub.refusal = refusal
    assert message in _refusal()
    assert _refusal().endswith("or give a local folder")
    assert hub.asked == [f"HEAD /{NAME}/resolve/main/config.json"] * 2


def test_a_hub_that_cannot_be_reached_is_reported_in_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(hub.url, "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    message = _refusal("bert-base-uncased")
    assert message.startswith(
        "the model bert-base-uncased must be in the local cache or on a hub that can be reached, got "
    )
    assert message.endswith(": check the name and the connection, or give a local folder")


@pytest.mark.parametrize("error", [TimeoutError("timed out\nafter a while"), OSError(28, "No space left"), KeyError()])
def test_any_error_below_is_one_line(hub: Hub, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    assert f"got {reason}: check the name and the connection" in _refusal()


def test_the_hub_is_not_waited_for_longer_than_some_seconds(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def silent(url: str, timeout: float) -> None:
        waits.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", silent)
    assert "got timed out: check the name and the connection" in _refusal()
    assert len(waits) == 1
    assert waits[0] <= 5


@pytest.mark.parametrize("name", ["a/b/c", "bad name", "-x", "", "x" * 200, "a--b"])
def test_what_can_be_no_name_is_refused_without_asking(hub: Hub, name: str) -> None:
    message = _refusal(name)
    assert message.startswith("model must be minilm, a folder that exists or a name on the hub such as")
    assert hub.asked == []


def test_offline_mode_is_honoured_as_the_environment_sets_it(hub: Hub, tmp_path: Path) -> None:
    program = "import sys\nfrom wordsway.models import embedding_dimension as e\nprint(e(sys.argv[1]))\n"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(hub.cache)}
    command = [sys.executable, "-c", program, NAME]
    failed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert failed.stderr.splitlines()[-1] == (
        f"wordsway.errors.InputError: the model {NAME} must be in the local hub cache while HF_HUB_OFFLINE is set, "
        "got no config.json there: unset HF_HUB_OFFLINE, or give a local folder"
    )
    assert hub.asked == []
    embedding_dimension(NAME)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tiny.DIMENSION}\n"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"needs huggingface_hub: run `pip install 'wordsway\[models\]'`"):
        embedding_dimension("bert-base-uncased")
