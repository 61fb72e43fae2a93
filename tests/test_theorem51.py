"""The objects of the proof of Theorem 5.1 against plain NumPy, and what its lemmas promise of them."""

import doctest
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from record_checks import check_record

import wordsway as ws
from wordsway.sensitivity import Theorem51

Matrix = NDArray[np.float64]


def _softmax(scores: Matrix) -> Matrix:
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _gaussian(rows: int, columns: int, seed: int) -> Matrix:
    return np.random.default_rng(seed).normal(size=(rows, columns)) / math.sqrt(columns)


def _moved(X: Matrix, word: int, delta: Matrix) -> Matrix:
    moved = X.copy()
    moved[word] += delta
    return moved


def _check_against_plain(proof: Theorem51, X: Matrix, W: Matrix, values: Matrix, scale: float) -> None:
    """Compare every number with softmax(X W X^T / scale) X values^T, written out."""
    n, d = X.shape
    i, direction, deltas = proof.word, proof.direction.numpy(), proof.perturbations.numpy()

    def features(context: Matrix) -> Matrix:
        return np.asarray(_softmax(context @ W @ context.T / scale) @ context @ values.T)

    assert proof.assumption == pytest.approx(d / (n * math.log(d) ** 4))
    np.testing.assert_allclose(proof.alignments, [x @ direction * math.sqrt(n) / d for x in X], rtol=1e-9)
    clean = np.linalg.norm(features(X))
    remains = np.zeros(n)
    for k, delta in enumerate(deltas):
        context = _moved(X, i, delta)
        weights = _softmax(context @ W @ context.T / scale)
        distances = [float(np.linalg.norm(row - np.eye(n)[i])) for row in weights]
        np.testing.assert_allclose(proof.scores[k], X @ W @ delta / scale, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(proof.distances[k], distances, rtol=1e-6, atol=1e-14)
        assert float(proof.changes[k]) == pytest.approx(np.linalg.norm(features(context) - features(X)) / clean)
        remains += np.array(distances) * np.linalg.norm(context @ values.T, 2)
    left = np.maximum(np.linalg.norm(values @ (deltas[0] - deltas[1])) - remains, 0)
    proved = math.sqrt(sum(left[j] ** 2 for j in range(n) if j != i)) / (2 * clean)
    assert proof.proved == pytest.approx(proved, abs=1e-12)
    assert proof.value == float(proof.changes.max())
    captured = [j for j in range(n) if j != i and float(proof.distances[:, j].max()) <= proof.distance]
    assert proof.captured == pytest.approx(len(captured) / (n - 1))
    assert proof.captured_rows.nonzero().flatten().tolist() == captured


@pytest.mark.parametrize(("n", "d", "word"), [(6, 48, 0), (12, 96, 7), (40, 64, 39)])
def test_every_number_is_that_of_plain_code(n: int, d: int, word: int) -> None:
    phi, X = ws.RandomAttention(d, seed=1), ws.gaussian_context(n, d, 2)
    proof = ws.theorem51(phi, X, word)
    assert proof.word == word
    _check_against_plain(proof, X.numpy(), phi.weight.numpy(), np.eye(d), math.sqrt(d))


def test_queries_keys_and_values_are_those_of_plain_code() -> None:
    d, size = 96, 64
    query, key, value = (_gaussian(size, d, seed) for seed in range(3))
    output = _gaussian(10, size, 3)
    X = ws.gaussian_context(8, d, 4)
    proof = ws.theorem51(ws.Attention(query, key, value, output=output), X, 2)
    _check_against_plain(proof, X.numpy(), query.T @ key, output @ value, math.sqrt(size))
    assert proof.captured > 0


def test_the_perturbations_are_those_of_the_proof() -> None:
    n, d = 10, 80
    phi, X = ws.RandomAttention(d), ws.gaussian_context(n, d)
    proof = ws.theorem51(phi, X)
    norms = torch.linalg.vector_norm(proof.perturbations, dim=1)
    assert float(norms.max()) == pytest.approx(math.sqrt(d))
    back = torch.linalg.solve(phi.weight.mT, proof.perturbations.mT).mT  # C (delta* +- v) / 2
    C = float(torch.linalg.vector_norm(back[0] - back[1])) / math.sqrt(d)
    torch.testing.assert_close((back[0] + back[1]) / C, proof.direction)
    assert float((X @ (back[0] - back[1])).abs().max()) < 1e-8 * d
    torch.testing.assert_close(X @ back[0], X @ back[1])
    assert float(torch.linalg.vector_norm(proof.direction)) <= math.sqrt(d) * (1 + 1e-12)


def _contexts() -> dict[str, torch.Tensor]:
    d = 64
    few = ws.gaussian_context(6, d, 1)
    return {
        "gaussian": ws.gaussian_context(20, d),
        "one word repeated": few[:1].repeat(12, 1),
        "each word twice": few.repeat(2, 1),
        "words and their negatives": torch.cat([few, -few]),
        "a common part": ws.normalize(ws.gaussian_context(20, d) + 3.0),
        "near the full dimension": ws.gaussian_context(d - 1, d),
    }


@pytest.mark.parametrize("name", list(_contexts()))
def test_lemma_d1_half_of_the_rows_are_aligned(name: str) -> None:
    proof = ws.theorem51(ws.RandomAttention(64), _contexts()[name])
    assert proof.aligned >= 0.5
    assert float(torch.linalg.vector_norm(proof.direction)) <= 8 * (1 + 1e-12)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 20), d=st.integers(24, 80), seed=st.integers(0, 999), common=st.floats(0, 3))
def test_what_is_proved_is_reached_and_stays_below_the_ceiling(n: int, d: int, seed: int, common: float) -> None:
    phi = ws.RandomAttention(d, seed=seed)
    X = ws.normalize(ws.gaussian_context(n, d, seed) + common)
    proof = ws.theorem51(phi, X, seed % n, seed=seed)
    found = ws.word_sensitivity(phi, X, seed % n, ceiling="simple")
    assert found.ceiling is not None
    assert proof.proved <= proof.value <= found.ceiling
    assert float(ws.respond(phi, X, seed % n).change(proof.delta[None])[0]) == pytest.approx(proof.value)


def test_wide_words_are_captured_and_the_proof_concludes() -> None:
    proof = ws.theorem51(ws.RandomAttention(1024), ws.gaussian_context(4, 1024), 1)
    assert proof.captured == 1
    assert proof.proved > 0.9
    assert not bool(proof.captured_rows[1])
    assert float(proof.distances[0, 0]) < 1e-2
    none = ws.theorem51(ws.RandomAttention(64), ws.gaussian_context(60, 64))
    assert (none.captured, none.proved) == (0, 0)


def test_rows_far_beyond_capture_keep_their_tiny_distance() -> None:
    d = 64
    X = ws.gaussian_context(3, d)
    proof = ws.theorem51(ws.RandomAttention(d, weight=20 * ws.RandomAttention(d).weight), X)
    assert 0 < float(proof.distances[:, 1:].min()) < 1e-20  # 1 - w would have rounded to 0


def test_the_same_seed_makes_the_same_objects_in_single_precision_too() -> None:
    phi, X = ws.RandomAttention(48), ws.gaussian_context(6, 48)
    first, again, other, single = (
        ws.theorem51(phi, context, seed=seed) for context, seed in ((X, 0), (X, 0), (X, 1), (X.float(), 0))
    )
    assert torch.equal(first.perturbations, again.perturbations)
    assert not torch.equal(first.perturbations, other.perturbations)
    assert single.value == pytest.approx(first.value, rel=1e-4)


def test_the_record_shows_itself() -> None:
    proof = ws.theorem51(ws.RandomAttention(48), ws.gaussian_context(6, 48), 2)
    keys = {"word", "n", "d", "assumption", "alignment", "aligned", "score", "separation", "captured", "proved"}
    check_record(proof, keys | {"sensitivity", "value_kind", "seconds"}, float(proof.scores[0, 0]))
    assert [row["row"] for row in proof.rows()] == list(range(6))
    assert proof.to_dict()["sensitivity"] == proof.value
    score = float(np.median(np.minimum(*proof.scores.numpy()))) / math.log(48) ** 2
    assert proof.score == pytest.approx(score, rel=0.5)  # the lower of the two middle rows
    difference = proof.perturbations[0] - proof.perturbations[1]
    assert proof.separation == pytest.approx(float(difference.norm()) / math.sqrt(48))


@pytest.mark.parametrize(
    ("phi", "message"),
    [
        (ws.RandomAttention(8, score="relu"), "softmax attention with one head"),
        (ws.Attention(None, None, heads=2), "softmax attention with one head"),
        (ws.Attention(None, None, causal=True), "not causal"),
        (ws.Attention(np.eye(8), None, query_bias=np.ones(8)), "without biases"),
        (ws.RandomFeatures(3, 8), "got RandomFeatures: use RandomAttention"),
        (ws.RandomAttention(9), "d=9"),
    ],
)
def test_other_maps_are_refused(phi: object, message: str) -> None:
    with pytest.raises(ws.InputError, match=message):
        ws.theorem51(phi, ws.gaussian_context(3, 8))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (ws.gaussian_context(1, 8), "n, d >= 2, got 1 x 8"),
        (ws.gaussian_context(8, 8), "must not span all 8 dimensions, got 8 words of rank 8"),
        (2 * ws.gaussian_context(3, 8), "norm sqrt\\(d\\).*use normalize"),
    ],
)
def test_contexts_outside_the_theorem_are_refused(X: torch.Tensor, message: str) -> None:
    with pytest.raises(ws.InputError, match=message):
        ws.theorem51(ws.RandomAttention(8), X)


def test_bad_options_and_weights_are_refused() -> None:
    X = ws.gaussian_context(3, 8)
    with pytest.raises(ws.InputError, match="word"):
        ws.theorem51(ws.RandomAttention(8), X, 3)
    with pytest.raises(ws.InputError, match="distance"):
        ws.theorem51(ws.RandomAttention(8), X, distance=0)
    with pytest.raises(ws.NumericalError, match="must not send the words to 0"):
        ws.theorem51(ws.RandomAttention(8, weight=torch.zeros(8, 8, dtype=torch.float64)), X)


def test_the_example_of_the_docstring() -> None:
    module = sys.modules[ws.theorem51.__module__]
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
