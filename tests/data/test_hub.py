"""Files from the hub: a small hub on this machine, one that cannot be reached, and the local hub cache."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from data.conftest import HUB_NAME, Hub
from wordsway.data.hub import fetch
from wordsway.errors import InputError, MissingExtra

FILE = "config.json"


@pytest.fixture
def served(hub: Hub) -> Hub:
    (hub.folder / FILE).write_text("{}")
    return hub


def _refusal(name: str = HUB_NAME, file: str = FILE) -> str:
    with pytest.raises(InputError) as caught:
        fetch(name, file)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)
    return str(caught.value)


def test_a_file_is_downloaded_once_and_needs_no_hub_later(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetch(HUB_NAME, FILE)
    assert path.read_text() == "{}"
    assert served.downloaded() == {FILE}
    count = len(served.requests)
    served.refusal = (500, "")
    assert fetch(HUB_NAME, FILE) == path
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(HUB_NAME, FILE) == path
    assert len(served.requests) == count


def test_a_missing_file_is_named(served: Hub) -> None:
    message = _refusal(file="model.safetensors")
    assert message.startswith(f"the model {HUB_NAME} must have model.safetensors on the hub, got no such file (pickled")
    assert message.endswith("choose another model, or give a local folder")


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
def test_a_hub_that_refuses_gets_one_request_and_is_reported(hub: Hub, refusal: tuple[int, str], message: str) -> None:
    hub.refusal = refusal
    assert message in _refusal()
    assert _refusal().endswith("or give a local folder")
    assert hub.requests == [f"HEAD /{HUB_NAME}/resolve/main/{FILE}"] * 2


def test_a_hub_that_cannot_be_reached_is_reported(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(hub.url, "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    message = _refusal("bert-base-uncased")
    assert message.startswith("the model bert-base-uncased must be in the local cache or on a hub that can be reached,")
    assert message.endswith(": check the name and the connection, or give a local folder")


def _raise(error: Exception) -> Callable[..., None]:
    def function(*_: object, **__: object) -> None:
        raise error

    return function


@pytest.mark.parametrize("error", [TimeoutError("timed out\nafter a while"), OSError(28, "No space left"), KeyError()])
def test_any_other_error_is_one_line(served: Hub, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _raise(error))
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    assert f"got {reason}: check the name and the connection" in _refusal()


def test_a_silent_hub_is_given_up_after_some_seconds(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    def silent(url: str, timeout: float) -> None:
        timeouts.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", silent)
    assert "got timed out: check the name and the connection" in _refusal()
    assert len(timeouts) == 1
    assert timeouts[0] <= 5


@pytest.mark.parametrize("name", ["a/b/c", "bad name", "-x", "", "x" * 200, "a--b"])
def test_an_impossible_name_is_refused_without_a_request(hub: Hub, name: str) -> None:
    assert _refusal(name).startswith("model must be minilm, a folder that exists or a name on the hub such as")
    assert hub.requests == []


def test_offline_mode_is_read_from_the_environment(served: Hub) -> None:
    program = f"from wordsway.data.hub import fetch\nprint(fetch({HUB_NAME!r}, {FILE!r}))\n"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_ENDPOINT": served.url, "HF_HUB_CACHE": str(served.cache)}
    command = [sys.executable, "-c", program]
    failed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert failed.stderr.splitlines()[-1] == (
        f"wordsway.errors.InputError: the model {HUB_NAME} must be in the local hub cache while HF_HUB_OFFLINE is set, "
        f"got no {FILE} there: unset HF_HUB_OFFLINE, or give a local folder"
    )
    assert served.requests == []
    path = fetch(HUB_NAME, FILE)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == path


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match=r"needs huggingface_hub: run `pip install 'wordsway\[models\]'`"):
        fetch("bert-base-uncased", FILE)
