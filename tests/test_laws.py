"""The paper's laws of word sensitivity, with fitted exponents and stated tolerances, printed on success too."""

from collections.abc import Sequence

import numpy as np
import pytest

from wordsway import (
    RandomAttention,
    gaussian_context,
    random_feature_response,
    response_sensitivity,
    review_contexts,
    word_sensitivity,
)


def _rf(n: int, d: int, draws: int, depth: int | None = None) -> float:
    """Mean S of random features over draws of the weights and the context."""
    responses = (random_feature_response(gaussian_context(n, d, seed), 0, depth, seed=seed) for seed in range(draws))
    return float(np.mean([response_sensitivity(response, 0, ceiling=None).value for response in responses]))


def _exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def _report(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        print(f"\n{line}")


def test_random_features_fall_like_the_inverse_root_of_the_length(capsys: pytest.CaptureFixture[str]) -> None:
    """S_rf ~ n^{-1/2}; in fact like (1 + n^{-1/2}) n^{-1/2}, the norm of the word's n d x d block of weights."""
    lengths, d = (20, 40, 80, 160, 320, 640), 16
    values = [_rf(n, d, draws=5) for n in lengths]
    plain = _exponent(lengths[1:], values[1:])
    blocks = [value / (1 + n**-0.5) for n, value in zip(lengths, values, strict=True)]
    corrected = _exponent(lengths, blocks)
    shown = ", ".join(f"{value:.3f}" for value in values)
    fits = f"exponent {plain:.3f} from n = 40, {corrected:.3f} without the factor 1 + n^-1/2"
    _report(capsys, f"S_rf at n = 20..640: {shown}; {fits}")
    assert abs(plain + 0.5) < 0.05
    assert abs(corrected + 0.5) < 0.02
    assert values == sorted(values, reverse=True)


def test_random_features_do_not_depend_on_the_dimension(capsys: pytest.CaptureFixture[str]) -> None:
    for n in (40, 80):
        values = {d: _rf(n, d, draws=6) for d in (16, 64, 192)}
        spread = max(values.values()) / min(values.values()) - 1
        shown = ", ".join(f"{value:.4f} (d={d})" for d, value in values.items())
        _report(capsys, f"S_rf at n = {n}: {shown}; spread {100 * spread:.1f}%")
        assert spread < 0.06  # of means over 6 draws, whose own spread is about 2%


def test_deep_random_features_fall_with_the_length(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = (40, 80, 160)
    values = [_rf(n, 8, draws=3, depth=3) for n in lengths]
    exponent = _exponent(lengths, values)
    _report(capsys, f"S_drf, L = 3, at n = 40..160: {', '.join(f'{v:.3f}' for v in values)}; exponent {exponent:.3f}")
    assert values == sorted(values, reverse=True)
    # as for one layer, short contexts fall a little faster, and every layer adds to it
    assert abs(exponent + 0.5) < 0.15


@pytest.mark.parametrize("n", [10, 50, 100, 250])
def test_random_attention_is_sensitive_to_one_word_at_any_length(n: int, capsys: pytest.CaptureFixture[str]) -> None:
    """S_raf > 1 at every length, and relu attention stays below softmax attention."""
    contexts, _ = review_contexts(2, n, 384)
    for seed, X in enumerate(contexts):
        softmax = word_sensitivity(RandomAttention(384, seed=seed), X, n // 2, ceiling=None).value
        relu = word_sensitivity(RandomAttention(384, "relu", seed=seed), X, n // 2, ceiling=None).value
        _report(capsys, f"reviews, n = {n}: S_raf = {softmax:.2f}, S of relu-raf = {relu:.2f}")
        assert softmax > 1
        assert relu < softmax


def test_relu_attention_falls_with_the_length(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = (20, 60, 180)
    contexts, _ = review_contexts(2, lengths[-1], 384)
    values: dict[str, list[float]] = {"softmax": [], "relu": []}
    for score, means in values.items():
        phi = RandomAttention(384, score)
        means += [
            float(np.mean([word_sensitivity(phi, X[:n], 5, ceiling=None).value for X in contexts])) for n in lengths
        ]
    fits = {score: _exponent(lengths, means) for score, means in values.items()}
    _report(capsys, f"exponents on reviews, n = 20..180: raf {fits['softmax']:.2f}, relu-raf {fits['relu']:.2f}")
    assert fits["relu"] < -0.3
    assert abs(fits["softmax"]) < 0.15
