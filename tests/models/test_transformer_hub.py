"""Transformers from the hub: what is fetched, once, of one commit, and nothing that could run code."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants

import wordsway as ws
from models import small_transformers as small
from models.conftest import HUB_NAME, Hub
from wordsway.errors import InputError


@pytest.fixture
def served(hub: Hub, tmp_path: Path) -> Hub:
    """The hub with a small Llama in several files, next to things that must not be fetched."""
    hub.folder = tmp_path / "llama"
    small.make("llama", dtype=torch.float32).save_pretrained(hub.folder, max_shard_size="5KB")
    (hub.folder / "modeling_llama.py").write_text("raise SystemExit('code of the model was run')\n")
    (hub.folder / "pytorch_model.bin").write_bytes(b"a pickle")
    return hub


def _fetched(hub: Hub) -> set[str]:
    return {question.split("/")[-1] for question in hub.asked if question.startswith("GET")}


def test_a_model_in_several_files_is_fetched_once(served: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ws.load(HUB_NAME)
    assert model.name == HUB_NAME
    shards = {path.name for path in served.folder.glob("*.safetensors")}
    assert len(shards) > 2
    assert _fetched(served) == {"config.json", "model.safetensors.index.json", *shards}
    X = torch.randn(1, 5, model.d, generator=torch.Generator().manual_seed(0))
    expected = ws.load(str(served.folder)).attention(1)(X)
    assert torch.equal(model.attention(1)(X), expected)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    count = len(served.asked)
    assert torch.equal(ws.load(HUB_NAME).attention(1)(X), expected)
    assert len(served.asked) == count


def test_a_model_in_one_file_comes_with_its_tokenizer(hub: Hub, bert: tuple[Path, Any]) -> None:
    model = ws.load(HUB_NAME)
    assert _fetched(hub) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert model.tokens("the film") == ws.load(str(bert[0])).tokens("the film")
    assert model.layer_inputs([model.tokens("the film")], 0).shape[2] == model.d


def test_a_model_without_safetensors_is_refused(served: Hub) -> None:
    for path in served.folder.glob("*.safetensors*"):
        path.unlink()
    with pytest.raises(InputError, match=r"must have model\.safetensors on the hub, got no such file") as caught:
        ws.load(HUB_NAME)
    assert "\n" not in str(caught.value)
    assert _fetched(served) == {"config.json"}


def test_a_damaged_index_and_a_missing_part_are_refused(served: Hub) -> None:
    next(iter(sorted(served.folder.glob("model-*.safetensors")))).unlink()
    with pytest.raises(InputError, match=r"must have model-00001-of-\d+.safetensors on the hub, got no such file"):
        ws.load(HUB_NAME)
    (index,) = served.cache.rglob("model.safetensors.index.json")
    index.write_text("{}")
    with pytest.raises(InputError, match=r"model\.safetensors\.index\.json must name the files of the weights"):
        ws.load(HUB_NAME)


def test_another_kind_of_model_is_refused_and_damage_names_the_folder_to_remove(hub: Hub) -> None:
    ws.load(HUB_NAME)
    (weights,) = hub.cache.rglob("model.safetensors")
    weights.write_bytes(b"garbage")
    (folder,) = hub.cache.glob("models--*")
    with pytest.raises(InputError, match=r"must hold a whole model, got .*: remove the folder ") as caught:
        ws.load(HUB_NAME)
    assert str(folder) in str(caught.value)
