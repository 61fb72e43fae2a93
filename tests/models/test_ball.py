"""Word profiles of small models: every value is a lower bound whose witness a plain pass reproduces."""

import itertools
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
from wordsway.models.ball import BallProfile, ball_profile
from wordsway.models.words import Word
from wordsway.sensitivity import Sensitivity

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


def _rows(model: ws.Model, found: BallProfile) -> Tensor:
    rows: Tensor = model.network.get_input_embeddings().weight.detach()[list(found.text.ids)]
    return rows


def _scores(found: BallProfile) -> list[tuple[Word, Sensitivity]]:
    return [(word, found.at(place)) for place, word in enumerate(found.words)]


def _reproduced(model: ws.Model, found: BallProfile, on: str | int, close: float = 1e-9) -> None:
    """Each value is that of a plain pass at its witness, which is in the ball."""
    rows = _rows(model, found)
    for word, score in _scores(found):
        assert score.delta.shape == (len(word.tokens), rows.shape[1])
        assert float(score.delta.norm()) <= score.radius * (1 + 1e-6)
        expected = plain.change(model.network, rows, plain.moved(rows, word.tokens, score.delta), on)
        assert score.value == pytest.approx(expected, rel=close)
        assert score.value > 0


# Values


@pytest.mark.parametrize(("name", "on"), KINDS)
@pytest.mark.parametrize("mode", ["search", "fast"])
def test_plain_passes_reproduce_the_values(name: str, on: str | int, mode: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    found = ball_profile(model, TEXT, on=on, mode=mode, steps=6)
    assert " ".join(word.text for word in found.words) == "the film was boring , and the end too"
    _reproduced(model, found, on, 1e-6 if name == "llama" else 1e-9)
    assert (found.mode, found.on) == (mode, f"layer {on}" if isinstance(on, int) else on)
    if mode == "fast":
        assert found.shortfall is not None
        assert 0 <= found.shortfall <= 1
    else:
        assert found.shortfall is None
    assert found.best.value == float(found.values.max())


@pytest.mark.parametrize(("name", "on"), KINDS[:7:2])
def test_the_search_finds_at_least_what_random_points_do(name: str, on: str | int, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    found = ball_profile(model, TEXT, on=on)
    phi = plain.model_features(model, found.text.ids, on)
    source = torch.Generator().manual_seed(5)
    for word, score in _scores(found):
        moves = torch.randn(200, *score.delta.shape, generator=source, dtype=torch.float64)
        lengths = score.radius * torch.rand(200, 1, 1, generator=source, dtype=torch.float64).sqrt()
        lengths[:100] = score.radius
        moves = moves * lengths / moves.norm(dim=(1, 2), keepdim=True)
        values, _ = phi.along([word.tokens]).change(moves.reshape(200, 1, -1), gradient=False)
        assert score.value >= float(values.max())


@pytest.mark.parametrize(("name", "on"), KINDS[::2])
def test_more_steps_never_find_less(name: str, on: str | int, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    profiles = {steps: ball_profile(model, TEXT, on=on, steps=steps) for steps in (1, 4, 16, 64)}
    for less, more in itertools.pairwise(profiles.values()):
        assert bool((more.values >= less.values).all())


def test_a_leader_is_named_only_where_its_lead_exceeds_what_the_search_still_gains(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    found = ball_profile(model, TEXT, steps=2)
    assert found.profile.gains is not None
    margin = 2 * float(found.profile.gains.max())
    assert found.profile.margin == pytest.approx(margin)
    top = float(found.values.max())
    expected = {word.position for word, value in zip(found.words, found.values, strict=True) if value >= top - margin}
    assert {word.position for word in found.leaders} == expected
    assert {row["position"] for row in found.rows() if row["leads"]} == expected
    assert len(expected) > 1  # two steps cannot tell words apart
    clear = ball_profile(model, TEXT, radius=1e-3, steps=64)  # where the model is linear, words differ
    assert [word.text for word in clear.leaders] == [clear.words[int(clear.values.argmax())].text]


def test_words_try_what_moved_the_leading_words_most(tmp_path: Path) -> None:
    """After 16 steps a word has at least what the witnesses of the leaders do to it."""
    model = _model("gpt2", tmp_path)
    found = ball_profile(model, "the film was too", steps=16, radius=3.0)
    phi = plain.model_features(model, found.text.ids, "last")
    response = phi.along([word.tokens for word in found.words])
    target = phi.embedded[list(found.leaders[0].tokens)].flatten() + found.best.delta.flatten()
    for place, word in enumerate(found.words):
        move = target[: phi.embedded.shape[1]] - phi.embedded[word.tokens[0]]
        moves = torch.zeros(len(found.words), response.shape[-1], dtype=torch.float64)
        moves[place, : len(move)] = move * min(1.0, 3.0 / float(move.norm()))
        assert float(found.values[place]) >= float(response.change(moves, gradient=False)[0][place]) * (1 - 1e-9)


def test_a_search_that_still_gains_is_reported(tmp_path: Path) -> None:
    model = _model("gpt2", tmp_path)
    assert {row["status"] for row in ball_profile(model, TEXT, steps=4).rows()} >= {"stopped at the step limit"}
    assert {row["status"] for row in ball_profile(model, TEXT, mode="fast", steps=1).rows()} == {"one jump"}


@pytest.mark.parametrize(("name", "on"), KINDS[::2])
@pytest.mark.parametrize("mode", ["search", "fast"])
def test_a_word_does_not_depend_on_the_other_words(name: str, on: str | int, mode: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    together = ball_profile(model, TEXT, on=on, mode=mode, steps=8)
    for place in (1, 3):
        alone = ball_profile(model, TEXT, [place], on=on, mode=mode, steps=8)
        close = 1e-3 if name == "llama" else 1e-6
        assert float(alone.values[0]) == pytest.approx(float(together.values[place]), rel=close)
    pair = ball_profile(model, TEXT, np.array([6, 1]), on=on, mode=mode, steps=8)  # type: ignore[arg-type]
    assert [word.position for word in pair.words] == [6, 1]


def test_a_seed_decides_and_nothing_else_is_random(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    state = torch.get_rng_state()
    values = [ball_profile(model, TEXT, steps=3, seed=seed).values.tolist() for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("mode", ["search", "fast"])
def test_single_precision_works_too(mode: str, tmp_path: Path) -> None:
    for name, on in (("bert", "last"), ("gpt2", "next")):
        model = _model(name, tmp_path, dtype=torch.float32)
        _reproduced(model, ball_profile(model, TEXT, on=on, mode=mode, steps=4), on, 1e-3)


# Words, radii and distributions


def test_a_text_that_was_read_is_not_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = _model("bert", tmp_path)
    long = "the film was long " * 20
    read = model.read(long, cut=True)
    assert len(caplog.records) == 1
    profile = ball_profile(model, read, [read.scored[1]], steps=2)
    assert model.swaps(read, profile.words[0], top=1).word == model.layer_profile(read, 1, steps=1).word
    assert len(caplog.records) == 1
    assert profile.values.tolist() == ball_profile(model, long, [1], steps=2, cut=True).values.tolist()


def test_special_tokens_are_measured_on_request(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    found = ball_profile(model, "the film", special=True, steps=2)
    assert [word.text for word in found.words] == ["[CLS]", "the", "film", "[SEP]"]
    assert [row["position"] for row in found.rows()] == [None, 0, 1, None]
    _reproduced(model, found, "last")


def test_the_default_radius_is_the_norm_of_the_embedding(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    own = ball_profile(model, TEXT, steps=2)
    rows = _rows(model, own)
    for word, score in _scores(own):
        assert score.radius == pytest.approx(float(rows[list(word.tokens)].norm()), rel=1e-12)
    given = ball_profile(model, TEXT, radius=0.3, steps=2)
    assert set(given.profile.radii.tolist()) == {0.3}
    _reproduced(model, given, "last")
    assert given.best.value < own.best.value


def test_in_a_small_ball_the_value_is_the_derivative(tmp_path: Path) -> None:
    """For a radius r -> 0 the value is r |J| / |before|, with the spectral norm of the Jacobian in the word."""
    model = _model("bert", tmp_path)
    profile = ball_profile(model, "the film", [1], radius=1e-4)
    phi = model.features("the film")
    jacobian = torch.func.jacrev(phi)(phi.embedded)[..., profile.words[0].tokens[0], :]
    base = phi(phi.embedded)
    steepest = torch.linalg.matrix_norm(jacobian.reshape(base.numel(), -1), 2)
    expected = 1e-4 * float(steepest / base.norm())
    assert 0.9 * expected < float(profile.values[0]) < expected * (1 + 1e-3)


@pytest.mark.parametrize("radius", [0, -1.0, math.nan, math.inf, "1", True, [1.0, 2.0]])
def test_a_radius_that_is_none_is_refused(radius: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        ball_profile(_model("bert", tmp_path), "the film", radius=radius)
    assert str(caught.value) == f"radius must be a number > 0, got {radius!r}"


def test_a_word_of_embedding_zero_needs_a_radius(tmp_path: Path) -> None:
    model = _model("bert", tmp_path)
    with torch.no_grad():
        model.network.get_input_embeddings().weight[model.read("film").ids[1]] = 0
    with pytest.raises(InputError, match="embedding of a word must not be zero, got that of 'film': give a radius"):
        ball_profile(model, "the film")
    assert ball_profile(model, "the film", radius=1.0, steps=2).values.min() > 0


def test_a_word_that_cannot_move_the_output_has_zero(tmp_path: Path) -> None:
    """In a decoder of no layer before it, a word moves its own row only: the rows of the others have no gradient."""
    model = _model("mistral", tmp_path, sliding_window=2, dtype=torch.float32)
    with torch.no_grad():
        for layer in model.network.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.network.norm.weight.zero_()
        model.network.norm.weight[0] = 1.0
        model.network.embed_tokens.weight[:, 0] = 1.0
    found = ball_profile(model, "the film", radius=50.0, steps=3)
    assert bool(torch.isfinite(found.values).all())
    assert bool(torch.isfinite(found.profile.deltas).all())


@pytest.mark.parametrize(("name", "on"), [("gpt2", "next"), ("bert-classifier", "class")])
@pytest.mark.parametrize("mode", ["search", "fast"])
def test_divergences_are_those_of_torch_and_variations_are_shares(
    name: str, on: str, mode: str, tmp_path: Path
) -> None:
    model = _model(name, tmp_path)
    found = ball_profile(model, TEXT, on=on, mode=mode, steps=4)
    rows = _rows(model, found)
    before = plain.output(model.network, rows, on)
    for (word, score), row in zip(_scores(found), found.rows(), strict=True):
        now = plain.output(model.network, plain.moved(rows, word.tokens, score.delta), on)
        expected = float(torch.nn.functional.kl_div(before.log(), now, reduction="sum"))
        assert row["divergence"] == pytest.approx(expected, rel=1e-7)
        assert 0 <= score.value <= 1
        assert score.value <= math.sqrt(expected / 2)  # Pinsker


# Records and bad input


@pytest.mark.parametrize(("mode", "on"), [("search", "last"), ("fast", "next")])
def test_records_are_plain_values(mode: str, on: str, tmp_path: Path) -> None:
    model = _model("gpt2", tmp_path)
    found = ball_profile(model, TEXT, on=on, mode=mode, steps=2)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["words"] == found.rows()
    assert (again["text"], again["on"], again["mode"], again["cut"]) == (TEXT, on, mode, 0)
    assert again["shortfall"] == found.shortfall
    third = found.rows()[3]
    assert {"position", "word", "tokens", "sensitivity", "on"} <= set(third)
    assert (third["position"], third["word"], third["on"]) == (3, "boring", on)
    assert third["tokens"] == len(found.text.scored[3].tokens) > 1
    assert third["sensitivity"] == float(found.values[3])
    assert TEXT[third["start"] : third["end"]] == "boring"
    assert ("divergence" in third) == (on == "next")
    restored = BallProfile.from_dict(again, found.text, found.words)
    assert restored.rows() == found.rows()
    assert "the" in found._repr_html_()
    assert "\n" not in repr(found)
    assert len(found.to_frame()) == 9
    assert len(found.plot().patches) == 9


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert", {"mode": "slow"}, "mode must be one of search, fast, got 'slow'"),
        (
            "bert",
            {"on": "lost"},
            r"on must be one of last, pooled, next, class, mask, .* got 'lost' \(did you mean 'last'\?\)",
        ),
        ("bert", {"on": None}, "on must be one of last, pooled, next, class, mask, .* the number of a layer, got None"),
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
        ("bert", {"words": "film"}, "words must be a sequence, got 'film': put it in a list$"),
        ("bert", {"words": 1}, "words must be a sequence, got 1: put it in a list$"),
        ("bert", {"steps": 0}, "steps must be an integer >= 1, got 0"),
        ("bert", {"steps": 1.5}, "steps must be an integer >= 1, got 1.5"),
    ],
)
def test_bad_input_is_refused_in_one_line(name: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = _model(name, tmp_path)
    with pytest.raises(InputError, match=f"^.*{message}") as caught:
        ball_profile(model, "the film", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("on", [2, np.int64(2), "2", "layer 2"])
def test_layers_may_be_named_in_several_ways(on: Any, tmp_path: Path) -> None:
    found = ball_profile(_model("bert", tmp_path), "the film", on=on, steps=1)
    assert found.on == "layer 2"


@pytest.mark.parametrize(
    ("count", "kind", "name"),
    [
        (3, "multi_label_classification", "labels"),
        (1, "multi_label_classification", "labels"),
        (3, "regression", "number"),
        (1, None, "number"),
    ],
)
def test_labels_and_numbers_change_by_their_own_measure(
    count: int, kind: str | None, name: str, tmp_path: Path
) -> None:
    model = _model("bert-classifier", tmp_path, num_labels=count, problem_type=kind)
    profile = ball_profile(model, "the film", on="class", steps=2)
    assert profile.on == name
    rows = model.embedded(profile.text.ids)
    mask = torch.ones(1, len(rows), dtype=torch.long)
    for place, word in enumerate(profile.words):
        moved = rows.clone()
        moved[list(word.tokens)] += profile.at(place).delta
        with torch.no_grad():
            both = [model.network(inputs_embeds=one[None], attention_mask=mask).logits[0] for one in (rows, moved)]
        before, after = (one.sigmoid() for one in both) if name == "labels" else both
        apart = (after - before).abs()
        assert float(profile.values[place]) == pytest.approx(float(apart.max() if name == "labels" else apart.sum()))
