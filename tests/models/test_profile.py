"""Word profiles of small models: every value is a lower bound whose witness a plain pass reproduces."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import wordsway as ws
from models import plain
from wordsway.errors import InputError
from wordsway.models.outputs import output_named
from wordsway.models.profile import Moves, TextProfile
from wordsway.models.reader import Reader

TEXT = "the film was boring, and the end too"  # "boring" has several tokens
KINDS: list[tuple[str, str | int]] = [
    ("bert", "last"),
    ("bert", "pooled"),
    ("bert", 1),
    ("bert-classifier", "class"),
    ("distilbert", "last"),
    ("gpt2", "last"),
    ("gpt2", "next"),
    ("gpt2", 2),
    ("llama", "next"),
]


def _model(name: str, folder: Path, **options: Any) -> ws.Model:
    return plain.with_words(name, folder, template="[CLS] $A [SEP]" if name.startswith("bert") else "", **options)


def _rows(model: ws.Model, found: TextProfile) -> Tensor:
    rows: Tensor = model.network.get_input_embeddings().weight.detach()[list(found.text.ids)]
    return rows


def _reproduced(model: ws.Model, found: TextProfile, on: str | int, close: float = 1e-9) -> None:
    """Each value is that of a plain pass at its witness, which is in the ball."""
    rows = _rows(model, found)
    for score in found.scores:
        assert score.delta.shape == (len(score.word.tokens), rows.shape[1])
        assert float(score.delta.norm()) <= score.radius * (1 + 1e-6)
        expected = plain.change(model.network, rows, plain.moved(rows, score.word, score.delta), on)
        assert score.value == pytest.approx(expected, rel=close)
        assert score.value > 0


# Values


@pytest.mark.parametrize(("name", "on"), KINDS)
@pytest.mark.parametrize("mode", ["search", "fast"])
def test_plain_passes_reproduce_the_values(name: str, on: str | int, mode: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    found = model.profile(TEXT, on=on, mode=mode, steps=6)
    assert [score.word.text for score in found.scores] == [
        "the",
        "film",
        "was",
        "boring",
        ",",
        "and",
        "the",
        "end",
        "too",
    ]
    _reproduced(model, found, on, 1e-6 if name == "llama" else 1e-9)
    assert (found.mode, found.on) == (mode, f"layer {on}" if isinstance(on, int) else on)
    if mode == "fast":
        assert found.shortfall is not None
        assert 0 <= found.shortfall <= 1
    else:
        assert found.shortfall is None
    assert found.best.value == max(score.value for score in found.scores)


@pytest.mark.parametrize(("name", "on"), KINDS[:7:2])
def test_the_search_finds_at_least_what_random_points_do(name: str, on: str | int, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    found = model.profile(TEXT, on=on)
    reader = Reader(model, found.text.ids, output_named(on, model.layers, model.network, model.name))
    source = torch.Generator().manual_seed(5)
    for score in found.scores:
        moves = torch.randn(200, *score.delta.shape, generator=source, dtype=torch.float64)
        lengths = score.radius * torch.rand(200, 1, 1, generator=source, dtype=torch.float64).sqrt()
        lengths[:100] = score.radius
        values, _, _ = reader.changes([score.word] * 200, moves * lengths / moves.norm(dim=(1, 2), keepdim=True))
        assert score.value >= float(values.max())


@pytest.mark.parametrize(("name", "on"), KINDS[:7:3])
def test_many_steps_find_more_than_one(name: str, on: str | int, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    one, many = (model.profile(TEXT, on=on, steps=steps) for steps in (1, 24))
    assert all(more.value >= less.value for more, less in zip(many.scores, one.scores, strict=True))
    assert sum(score.converged for score in many.scores) > len(many.scores) / 2
    assert many.cost.evaluations == 25 * len(many.scores)


def test_a_search_that_still_gains_says_so(tmp_path: Path) -> None:
    model = _model("gpt2", tmp_path)
    found = model.profile(TEXT, steps=4)
    assert not all(score.converged for score in found.scores)
    assert {record["status"] for record in found.records()} >= {"stopped at the step limit"}
    assert not any(score.converged for score in model.profile(TEXT, mode="fast", steps=1).scores)


@pytest.mark.parametrize(("name", "on"), KINDS[::2])
@pytest.mark.parametrize("mode", ["search", "fast"])
def test_a_word_does_not_depend_on_which_others_are_asked(name: str, on: str | int, mode: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    together = model.profile(TEXT, on=on, mode=mode, steps=8)
    for place in (1, 3):
        (alone,) = model.profile(TEXT, [place], on=on, mode=mode, steps=8).scores
        assert alone.value == pytest.approx(together.scores[place].value, rel=1e-3 if name == "llama" else 1e-6)
    pair = model.profile(TEXT, np.array([6, 1]), on=on, mode=mode, steps=8)  # type: ignore[arg-type]
    assert [score.word.position for score in pair.scores] == [6, 1]


def test_a_seed_decides_and_nothing_else_is_random(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    state = torch.get_rng_state()
    values = [[score.value for score in model.profile(TEXT, steps=3, seed=seed).scores] for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("mode", ["search", "fast"])
def test_single_precision_works_too(mode: str, tmp_path: Path) -> None:
    for name, on in (("bert", "last"), ("gpt2", "next")):
        model = _model(name, tmp_path, dtype=torch.float32)
        _reproduced(model, model.profile(TEXT, on=on, mode=mode, steps=4), on, 1e-3)


# Words, radii and distributions


def test_special_tokens_are_measured_when_asked(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    found = model.profile("the film", special=True, steps=2)
    assert [(score.word.text, score.word.position) for score in found.scores] == [
        ("[CLS]", None),
        ("the", 0),
        ("film", 1),
        ("[SEP]", None),
    ]
    _reproduced(model, found, "last")
    assert [record["position"] for record in found.records()] == [None, 0, 1, None]


def test_the_radius_is_the_norm_of_the_words_own_embedding_unless_told(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    own = model.profile(TEXT, steps=2)
    rows = _rows(model, own)
    for score in own.scores:
        assert score.radius == pytest.approx(float(rows[list(score.word.tokens)].norm()), rel=1e-12)
    given = model.profile(TEXT, radius=0.3, steps=2)
    assert {score.radius for score in given.scores} == {0.3}
    _reproduced(model, given, "last")
    assert given.best.value < own.best.value


def test_a_small_ball_gives_the_derivative(tmp_path: Path) -> None:
    """For a radius r -> 0 the value is r |J| / |before|, with the spectral norm of the Jacobian in the word."""
    model = _model("bert", tmp_path)
    (score,) = model.profile("the film", [1], radius=1e-4).scores
    reader = Reader(model, model.read("the film").ids, output_named("last", 3, model.network, "small"))
    jacobian = reader.pull(torch.eye(reader.before.numel(), dtype=torch.float64).reshape(-1, *reader.before.shape))
    steepest = torch.linalg.matrix_norm(jacobian[:, score.word.tokens[0]], 2)
    expected = 1e-4 * float(steepest / reader.before.norm())
    assert 0.9 * expected < score.value < expected * (1 + 1e-3)


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "1", True, [1.0, 2.0]])
def test_a_radius_that_is_none_is_refused(radius: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        _model("bert", tmp_path).profile("the film", radius=radius)
    assert str(caught.value) == f"radius must be a number > 0, got {radius!r}"


def test_a_word_of_embedding_zero_needs_a_radius(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    with torch.no_grad():
        model.network.get_input_embeddings().weight[model.read("film").ids[1]] = 0
    with pytest.raises(InputError, match="embedding of a word must not be zero, got that of 'film': give a radius"):
        model.profile("the film")
    assert model.profile("the film", radius=1.0, steps=2).scores[1].value > 0


def test_a_word_that_cannot_move_the_output_has_zero(tmp_path: Path) -> None:
    """In a decoder of no layer before it, a word moves its own row only: the rows of the others give no grad."""
    model = _model("mistral", tmp_path, sliding_window=2, dtype=torch.float32)
    with torch.no_grad():
        for layer in model.network.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.network.norm.weight.zero_()
        model.network.norm.weight[0] = 1.0
        model.network.embed_tokens.weight[:, 0] = 1.0
    found = model.profile("the film", radius=50.0, steps=3)
    assert all(math.isfinite(score.value) for score in found.scores)
    assert all(bool(torch.isfinite(score.delta).all()) for score in found.scores)


def test_moves_of_length_zero_stay_where_they_are(tmp_path: Path) -> None:
    model = _model("bert", tmp_path, dtype=torch.float32)
    text = model.read("the film")
    reader = Reader(model, text.ids, output_named("last", 3, model.network, "small"))
    moves = torch.zeros(2, 1, reader.rows.shape[1])
    moves[1, 0, 0] = 1e-30
    problem = Moves(reader, text.scored, 100.0)
    assert torch.equal(problem._long(moves, 1.0)[0], moves[0])
    assert bool(torch.isfinite(problem._long(moves, 1.0)).all())


@pytest.mark.parametrize(("name", "on"), [("gpt2", "next"), ("bert-classifier", "class")])
@pytest.mark.parametrize("mode", ["search", "fast"])
def test_divergences_are_those_of_torch_and_variations_are_shares(
    name: str, on: str, mode: str, tmp_path: Path
) -> None:
    model = _model(name, tmp_path)
    found = model.profile(TEXT, on=on, mode=mode, steps=4)
    rows = _rows(model, found)
    before = plain.output(model.network, rows, on)
    for score, record in zip(found.scores, found.records(), strict=True):
        now = plain.output(model.network, plain.moved(rows, score.word, score.delta), on)
        expected = float(torch.nn.functional.kl_div(before.log(), now, reduction="sum"))
        assert score.divergence == pytest.approx(expected, rel=1e-7)
        assert record["divergence"] == score.divergence
        assert 0 <= score.value <= 1
        assert score.value <= math.sqrt(expected / 2)  # Pinsker


# Records and bad input


@pytest.mark.parametrize(("mode", "on"), [("search", "last"), ("fast", "next")])
def test_records_are_plain_values(mode: str, on: str, tmp_path: Path) -> None:
    model = _model("gpt2", tmp_path)
    found = model.profile(TEXT, on=on, mode=mode, steps=2)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["words"] == found.records()
    assert (again["text"], again["on"], again["mode"], again["cut"]) == (TEXT, on, mode, 0)
    assert again["shortfall"] == found.shortfall
    third = found.records()[3]
    assert {"position", "word", "tokens", "sensitivity", "on"} <= set(third)
    assert (third["position"], third["word"], third["on"]) == (3, "boring", on)
    assert third["tokens"] == len(found.text.scored[3].tokens) > 1
    assert third["sensitivity"] == found.scores[3].value
    assert TEXT[third["start"] : third["end"]] == "boring"
    assert ("divergence" in third) == (on == "next")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert", {"mode": "slow"}, "mode must be search or fast, got 'slow'"),
        (
            "bert",
            {"on": "lost"},
            r"on must be one of last, pooled, next, class or .* got 'lost' \(did you mean 'last'\?\)",
        ),
        ("bert", {"on": None}, "on must be one of last, pooled, next, class or the number of a layer, got None"),
        ("bert", {"on": True}, "or the number of a layer, got True"),
        ("bert", {"on": 1.0}, "or the number of a layer, got 1.0"),
        ("bert", {"on": 4}, "on must be a layer from 0 to 3, got 4: bert has 3 layers"),
        ("bert", {"on": -1}, "on must be a layer from 0 to 3, got -1: bert has 3 layers"),
        ("bert", {"on": "layer 7"}, "on must be a layer from 0 to 3, got 7"),
        (
            "bert",
            {"on": "next"},
            "next needs a model that predicts the next token, got bert, .* measure on last instead",
        ),
        ("xlm-roberta", {"on": "next"}, "next needs a model that predicts the next token, got xlm-roberta"),
        ("gpt2", {"on": "class"}, "class needs a model with classes of texts, got gpt2: measure on pooled instead"),
        ("bert", {"words": []}, "there must be a word to measure, got none"),
        ("bert", {"words": [2]}, "word must be a position from 0 to 1 or a word of the text, got 2: 0 the, 1 film"),
        ("bert", {"words": ["a"]}, "word must be a position from 0 to 1 or a word of the text, got 'a': 0 the, 1 film"),
        ("bert", {"words": "film"}, r"words must be a list of words or positions, got 'film': use \['film'\]$"),
        ("bert", {"words": 1}, r"words must be a list of words or positions, got 1: use \[1\]$"),
        ("bert", {"steps": 0}, "steps must be an integer >= 1, got 0"),
        ("bert", {"steps": 1.5}, "steps must be an integer >= 1, got 1.5"),
    ],
)
def test_bad_input_is_refused_in_one_line(name: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    with pytest.raises(InputError, match=f"^.*{message}") as caught:
        model.profile("the film", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("on", [2, np.int64(2), "2", "layer 2"])
def test_layers_may_be_named_in_several_ways(on: Any, tmp_path: Path) -> None:
    found = _model("bert", tmp_path).profile("the film", on=on, steps=1)
    assert found.on == "layer 2"


@pytest.mark.parametrize("kind", ["multi_label_classification", "regression"])
def test_outputs_that_are_no_classes_are_not_taken_for_some(kind: str, tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, num_labels=3, problem_type=kind)
    with pytest.raises(InputError, match=f"^class needs classes of which one holds, got {kind} of bert: measure on po"):
        model.profile("the film", on="class")


def test_a_single_class_says_nothing(tmp_path: Path) -> None:
    model = _model("bert-classifier", tmp_path, num_labels=1)
    with pytest.raises(
        InputError, match=r"^class needs two classes at least, got 1 of bert: measure on pooled instead"
    ):
        model.profile("the film", on="class")
