"""Where a model is and in which dtype: everything is measured there, with the numbers of the CPU."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import wordsway as ws
from models import small_transformers as small
from models import tiny
from models.second_device import There, second_device
from wordsway.errors import InputError
from wordsway.memory import ResourceUsage
from wordsway.models import Model, length_curve, load
from wordsway.models.ball import ball_profile

TEXT = "the filming was and the film"
WORDS = [
    "good",
    "bad",
    "long",
    "short",
    "plain",
    "new",
    "old",
    "loud",
    "quiet",
    "dark",
    "light",
    "slow",
    "fast",
    "warm",
]
PIECES = [*tiny.PIECES, *WORDS]
KINDS = ("bert-classifier", "gpt2", "llama")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny.write_tokenizer(folder, PIECES)
    return tiny.tokenizer(folder)


def network(kind: str, **options: Any) -> Any:
    sizes = {"vocab_size": len(tiny.SPECIAL) + len(PIECES), "pad_token_id": 0, "num_labels": 3}
    return small.make(kind, dtype=torch.float32, **sizes | options)


MEASUREMENTS: dict[str, Callable[[Model], Any]] = {
    "profile": lambda model: model.profile(TEXT),
    "pooled": lambda model: model.profile(TEXT, on="pooled"),
    "rows": lambda model: model.profile(TEXT, on="last"),
    "ball": lambda model: ball_profile(model, TEXT, [0, 1], on=1, steps=4),
    "fast": lambda model: ball_profile(model, TEXT, mode="fast", steps=2),
    "swaps": lambda model: model.swaps(TEXT, 1, checks=9),
    "exhaustive": lambda model: model.swaps(TEXT, 1, exhaustive=True),
    "flips": lambda model: model.flips(TEXT, candidates="near:5"),
    "length": lambda model: length_curve(model, [16], sentence=TEXT, texts=["the film was and " * 9], draws=2),
    "layer profile": lambda model: model.layer_profile(TEXT, 1, steps=2),
    "layer changes": lambda model: model.layer_changes(TEXT, 1),
    "heads": lambda model: model.head_sensitivities(TEXT, 1),
    "scores": lambda model: model.attention_scores(TEXT),
    "inputs": lambda model: model.layer_inputs([model.tokens(TEXT)], 1),
    "attention": lambda model: model.attention(1)(model.layer_inputs([model.tokens(TEXT)], 1)[0]),
    "features": lambda model: ws.word_sensitivity(phi := model.features(TEXT), phi.embedded, 2),
    "radius": lambda model: model.radius(1),
    "ellipsoid": lambda model: model.ellipsoid(1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MEASUREMENTS)
def test_measurements_run_where_the_model_is(name: str, kind: str, tokenizer: Any) -> None:
    measure, made = MEASUREMENTS[name], network(kind)
    expected = leaves(measure(load(made, tokenizer)))
    with second_device() as device:
        model = load(made, tokenizer, device=device)
        assert all(isinstance(weight, There) for weight in model.network.parameters())
        measured = leaves(measure(model))
    assert measured == [pytest.approx(one, rel=1e-4, abs=1e-6) if isinstance(one, float) else one for one in expected]


def leaves(values: Any) -> list[Any]:
    """What records, dictionaries, lists and tensors hold, in their order, without what it cost."""
    if isinstance(values, ResourceUsage):
        return []
    if isinstance(values, torch.Tensor):
        values = values.tolist()
    if dataclasses.is_dataclass(values):
        values = vars(values)
    if isinstance(values, dict):
        values = list(values.values())
    return [leaf for one in values for leaf in leaves(one)] if isinstance(values, list | tuple) else [values]


# Objects, paths and pipelines


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_keeps_its_place_and_its_dtype(kind: str, tokenizer: Any) -> None:
    made = network(kind).double()
    assert (load(made).device, load(made).dtype) == (torch.device("cpu"), torch.float64)
    model = load(made, tokenizer, dtype="bfloat16", device="cpu")
    assert {weight.dtype for weight in model.network.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in made.parameters()} == {torch.float64}
    tied = [
        one.get_input_embeddings().weight is one.get_output_embeddings().weight
        for one in (made, model.network)
        if one.get_output_embeddings() is not None
    ]
    assert len(set(tied)) <= 1
    assert all(buffer.dtype != torch.bfloat16 for buffer in model.network.buffers())  # angles stay exact


def test_weights_that_stay_are_shared(tokenizer: Any) -> None:
    made = network("gpt2")
    model = load(made, tokenizer, device="cpu", dtype=torch.float32)
    pairs = zip(made.parameters(), model.network.parameters(), strict=True)
    assert all(one.data_ptr() == other.data_ptr() for one, other in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_near_single_precision(kind: str, tokenizer: Any) -> None:
    """Weights that bfloat16 holds exactly: what differs is the arithmetic."""
    made = network(kind).bfloat16()
    exact, rounded = load(made, tokenizer, dtype="float32"), load(made, tokenizer)
    assert rounded.dtype == torch.bfloat16
    expected, profile = exact.profile(TEXT, on="pooled"), rounded.profile(TEXT, on="pooled")
    assert profile.cost.dtype == "float32"  # in which effects are compared
    for one, other in zip(expected.words, profile.words, strict=True):
        assert other.masked == pytest.approx(one.masked, rel=0.1, abs=0.02)
        assert other.masked != one.masked
    for name in ("ball", "swaps", "flips", "length"):
        assert all(math.isfinite(one) for one in leaves(MEASUREMENTS[name](rounded)) if isinstance(one, float)), name


def test_a_path_and_a_pipeline_are_the_model(tmp_path: Path, tokenizer: Any) -> None:
    from transformers import PreTrainedTokenizerFast, pipeline

    made = network("bert-classifier")
    made.save_pretrained(tmp_path / "model")
    fast: Any = PreTrainedTokenizerFast
    own = fast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    own.save_pretrained(tmp_path / "model")
    expected = leaves(load(made, tokenizer).profile(TEXT).words)
    for given in (tmp_path / "model", str(tmp_path / "model")):
        read = leaves(load(given).profile(TEXT).words)
        assert read == pytest.approx(expected, abs=1e-6)  # their attention is computed by another kernel
    classify = pipeline("text-classification", model=made, tokenizer=own)
    model = load(classify)
    assert leaves(model.profile(TEXT).words) == expected
    (best,) = classify([TEXT])
    profile = model.profile(TEXT)
    assert profile.decision == best["label"]
    assert profile.before == pytest.approx(best["score"], rel=1e-5)
    half = load(tmp_path / "model", dtype="bfloat16")
    assert half.dtype == torch.bfloat16


def test_names_are_read_once_in_every_dtype() -> None:
    plain, half = load("minilm"), load("minilm", dtype="bfloat16")
    assert (plain.dtype, half.dtype) == (torch.float32, torch.bfloat16)
    assert load("minilm").network is plain.network
    with second_device() as device:
        assert load("minilm", device=device).device == device
    assert plain.device == torch.device("cpu")


def test_a_model_on_several_devices_needs_the_name_of_one(tokenizer: Any) -> None:
    made = network("gpt2")
    with second_device() as device:
        made.transformer.h[1].to(device)
        with pytest.raises(
            InputError, match="gpt2 must be on one device, got cpu, meta: choose one of them as the device"
        ):
            load(made, tokenizer)
        assert load(made, tokenizer, device="cpu").device == torch.device("cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device must be auto, cpu or an accelerator of this machine, got 'gpu'"),
        ({"device": "cuda:77"}, "device must be auto, cpu or an accelerator of this machine, got 'cuda:77'"),
        ({"device": 1.5}, "device must be auto, cpu or an accelerator of this machine, got 1.5"),
        ({"dtype": "float23"}, "dtype must be one of .*, got 'float23' .*did you mean 'float32'"),
        ({"dtype": torch.int8}, "dtype must be one of float16, bfloat16, float32, float64, got torch.int8"),
        ({"dtype": 32}, "dtype must be one of float16, bfloat16, float32, float64, got 32"),
    ],
)
def test_devices_and_dtypes_that_are_not_there_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load("minilm", **options)
    assert "\n" not in str(caught.value)


def test_words_of_a_vocabulary_that_a_text_exhausts_are_compared(tmp_path: Path) -> None:
    tiny.write_bert(tmp_path)
    model = load(tmp_path)  # its vocabulary has five words: the and was film, and ing
    assert model.profile("the filming was and the film").words[0].draws == 3
