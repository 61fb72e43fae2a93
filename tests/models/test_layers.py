"""Perturbations that attract attention, attention scores, answers to prompts, and word sensitivity against length."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import wordsway as ws
from models import small_transformers as small
from wordsway import InputError
from wordsway.models import Model
from wordsway.models.ball import ball_profile
from wordsway.models.layers import _Stack, attracting_direction, one_head
from wordsway.models.words import Text, Word

KINDS = ("bert", "roberta", "distilbert", "mpnet", "gpt2", "llama", "qwen2")


def _text(n: int = 9) -> Text:
    ids = small.tokens(1, n)[0].tolist()
    return Text("", tuple(ids), tuple(Word(place, str(place), 0, 0, (place,)) for place in range(n)))


@pytest.fixture(scope="module")
def minilm() -> Model:
    return ws.load("minilm")


@pytest.mark.parametrize("kind", KINDS)
def test_the_stack_is_the_model(kind: str) -> None:
    network = small.make(kind)
    model, text = ws.load(network), _text()
    stack = _Stack(model, text)
    ones = torch.ones(1, 9, dtype=torch.long)
    with torch.no_grad():
        states = network.base_model(
            input_ids=torch.tensor([text.ids]), attention_mask=ones, output_hidden_states=True
        ).hidden_states
    for found, expected in zip(stack.states, states, strict=True):
        torch.testing.assert_close(found, expected[0])
    again = stack.run(stack.rows)
    for found, expected in zip(again, stack.states, strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(stack.attended(stack.rows)[None], model.layer_inputs([list(text.ids)], 0))


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_a_perturbed_word(kind: str) -> None:
    model, text = ws.load(small.make(kind)), _text()
    found = model.layer_changes(text, text.words[4], norm=0.5, draws=3, seed=1)
    assert found.attracting.shape == (small.LAYERS + 1,)
    assert found.noise.shape == (3, small.LAYERS + 1)
    size = float(torch.linalg.vector_norm(_Stack(model, text).rows))
    assert float(found.attracting[0]) == pytest.approx(0.5 / size)
    assert found.noise[:, 0].tolist() == pytest.approx([0.5 / size] * 3)
    assert float(torch.linalg.vector_norm(found.delta)) == pytest.approx(0.5)
    torch.testing.assert_close(found.after.sum(-1), torch.ones_like(found.after[..., 0]))
    json.dumps(found.to_dict(), allow_nan=False)
    other = -found.delta
    assert float(_Stack(model, text).changes(text.words[4], other)[1:].mean()) <= float(found.attracting[1:].mean())


@pytest.mark.parametrize("head", [0, 2, None])
def test_the_direction_is_the_top_right_singular_vector(head: int | None) -> None:
    layer = ws.load(small.make("bert")).attention(0)
    assert layer.query is not None
    assert layer.key is not None
    rows = torch.randn(7, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = attracting_direction(layer, rows, heads=None if head is None else [head])
    total = torch.zeros(24, dtype=torch.float64)
    for number in range(3) if head is None else [head]:
        part = slice(8 * number, 8 * number + 8)
        product = layer.query[part].mT @ layer.key[part]
        vector = torch.linalg.svd(product)[2][0]
        queries, keys, _ = layer.project(torch.stack([*rows, vector]))
        bias = layer.key_bias[part] if layer.key_bias is not None else 0
        pull = float(queries[number, :7].mean(0) @ (keys[number, 7] - bias))
        total += vector if pull >= 0 else -vector
    torch.testing.assert_close(found, total / total.norm())


def test_a_word_before_the_moved_one_does_not_look_at_it() -> None:
    model, text = ws.load(small.make("llama")), _text()
    found = model.layer_changes(text, text.words[5], draws=1)
    torch.testing.assert_close(found.before[:, :5], found.after[:, :5])
    assert not torch.allclose(found.before[:, 6:], found.after[:, 6:])


@pytest.mark.parametrize(
    ("kind", "options"),
    [("bert", {}), ("gpt2", {}), ("llama", {}), *(("mistral", {"sliding_window": size}) for size in (1, 4, 12))],
)
def test_attention_is_what_the_model_computes(kind: str, options: dict[str, int]) -> None:
    network = small.make(kind, attn_implementation="eager", dtype=torch.float32, **options)
    model, text = ws.load(network), _text()
    with torch.no_grad():
        expected = network.base_model(input_ids=torch.tensor([text.ids]), output_attentions=True).attentions
    for layer in range(small.LAYERS):
        scores = model.attention_scores(text, layer).scores
        torch.testing.assert_close(scores, expected[layer][0], atol=1e-5, rtol=1e-4)
    before = model.layer_changes(text, 2, draws=1).before
    torch.testing.assert_close(before, expected[0][0], atol=1e-5, rtol=1e-4)


def test_attention_among_words(minilm: Model) -> None:
    found = minilm.attention_scores("An unbelievableness of being")
    names, scores = found.mean()
    assert names == ["An", "unbelievableness", "of", "being"]
    average = found.scores.mean(0)
    assert average.shape == (7, 7)  # [CLS] an unbelievable ##ness of being [SEP]
    assert float(scores[0, 1]) == pytest.approx(float(average[1, 2] + average[1, 3]), rel=1e-6)
    assert float(scores[1, 2]) == pytest.approx(float(average[2:4, 4].mean()), rel=1e-6)
    assert found.to_dict()["words"] == names


def test_real_models_are_attracted(minilm: Model) -> None:
    found = minilm.layer_changes("I love her smile more than words can say", 3)
    before, after = found.looked_at()
    assert after > before
    for head in (12, -1):
        with pytest.raises(InputError, match=f"head must be from 0 to 11, got {head}"):
            found.looked_at(head)
    assert float(found.attracting[1:].mean()) > float(found.noise[:, 1:].mean())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": 0.0}, "norm must be a number > 0, got 0.0"),
        ({"norm": float("nan")}, "norm must be a number > 0, got nan"),
        ({"norm": "long"}, "norm must be a number > 0, got 'long'"),
        ({"head": 12}, "head must be from 0 to 11, got 12"),
        ({"head": 1.5}, "head must be from 0 to 11, got 1.5"),
        ({"head": "a"}, "head must be from 0 to 11, got 'a'"),
        ({"draws": 0}, "draws must be an integer >= 1, got 0"),
        ({"word": 9}, "word must be a position from 0 to 3 or a word of the text, got 9: 0 I, 1 love, 2 her, 3 smile"),
    ],
)
def test_what_cannot_be_perturbed_is_refused(options: dict[str, Any], message: str, minilm: Model) -> None:
    given = {"word": 1, **options}
    with pytest.raises(InputError, match=message):
        minilm.layer_changes("I love her smile", **given)


# Prompts


def test_two_prompts_and_their_answers() -> None:
    model = ws.load("smollm2")
    same = model.prompt_pair("Is it good?", "Is it good?")
    assert same.total_variation == 0.0
    assert same.probabilities[0] == same.probabilities[1]
    found = model.prompt_pair("Is water wet? Yes or no?", "Is stone wet? Yes or no?", ("Yes", "No"))
    assert 0 < found.total_variation < 1
    assert found.divergence > 0
    assert all(0 < share < 1 for row in found.probabilities for share in row)
    assert set(found.to_dict()) == {"model", "before", "after", "total_variation", "divergence"}
    wrong: list[tuple[Any, str]] = [("Yes", "answers must be a sequence, got 'Yes'"), ((1,), "must be words, got 1")]
    for answers, message in wrong:
        with pytest.raises(InputError, match=message):
            model.prompt_pair("Is it good?", "Is it bad?", answers)


def test_an_encoder_has_no_answers(minilm: Model) -> None:
    with pytest.raises(InputError, match="next needs a model that predicts the next token, got minilm"):
        minilm.prompt_pair("a", "b")


# Heads


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_heads_side_by_side_are_the_layer(kind: str) -> None:
    layer = ws.load(small.make(kind)).attention(1)
    X = torch.randn(6, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mixed = layer.mix(X)
    for head in range(layer.heads):
        torch.testing.assert_close(one_head(layer, head)(X), mixed[head])


def test_sensitivities_of_heads_have_witnesses() -> None:
    model, text = ws.load(small.make("bert")), _text(6)
    rows = model.layer_inputs([list(text.ids)], 0)[0].double()
    for word in (text.words[2], Word(0, "two", 0, 0, (3, 4))):
        found = model.head_sensitivities(text, word)
        assert len(found) == 3
        for head, one in enumerate(found):
            phi = one_head(model.attention(0), head)
            moved = rows.clone()
            moved[list(word.tokens)] += one.delta
            before = phi(rows)
            assert float((phi(moved) - before).norm() / before.norm()) == pytest.approx(one.value, rel=1e-6)
            assert one.value > 0


# Layer by layer


def test_a_layer_profile_tries_each_witness_at_all_layers() -> None:
    model = ws.load("minilm")
    profile = model.layer_profile("I love her smile", "love", steps=2)
    assert len(profile.values) == model.layers + 1
    for layer in range(model.layers + 1):
        phi = model.features("I love her smile", on=layer)
        response = phi.along([profile.word.tokens])
        tried, _ = response.change(profile.deltas.reshape(-1, 1, phi.embedded.shape[1]), gradient=False)
        assert float(profile.values[layer]) == pytest.approx(float(tried.max()), rel=1e-5)
        alone = ball_profile(model, "I love her smile", ["love"], on=layer, steps=2)
        assert float(profile.values[layer]) >= float(alone.values[0]) * (1 - 1e-5)
    assert [row["layer"] for row in profile.rows()] == list(range(model.layers + 1))
    assert profile.to_dict()["word"] == "love"
