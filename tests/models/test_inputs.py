"""Inputs for networks and features: what each kind of data is made of, and what must hold of d."""

import pytest
import torch

from wordsway import InputError, gaussian_context, normalize, review_contexts
from wordsway.data import image_samples
from wordsway.models import input_samples


def test_gaussian_inputs_are_rows_of_a_context() -> None:
    X, y = input_samples("gaussian", 7, 5, seed=3)
    assert torch.equal(X, gaussian_context(7, 5, 3))
    assert set(y.tolist()) == {-1.0, 1.0}
    assert y.dtype == torch.float64


def test_reviews_are_their_words_one_after_the_other() -> None:
    X, y = input_samples("imdb", 4, 2 * 384, seed=1)
    contexts, labels = review_contexts(4, 3, 384, 1)
    torch.testing.assert_close(X, normalize(torch.cat([contexts[:, 1], contexts[:, 2]], 1)))
    torch.testing.assert_close(X.norm(dim=1), torch.full((4,), 768.0**0.5, dtype=torch.float64))
    assert torch.equal(y, labels)


def test_images_are_those_of_their_collection() -> None:
    for found, expected in zip(input_samples("digits", 5, seed=2), image_samples("digits", 5, 2), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(("data", "d"), [("imdb", 384), ("digits", None)])
def test_a_row_of_real_data_does_not_depend_on_the_count(data: str, d: int | None) -> None:
    assert torch.equal(input_samples(data, 2, d)[0], input_samples(data, 9, d)[0][:2])


@pytest.mark.parametrize(
    ("data", "count", "d", "message"),
    [
        ("imdb", 3, 500, "d must be a multiple of 384, one for each word of a review, got 500: take 384"),
        ("imdb", 3, 800, "got 800: take 768"),
        ("imdb", 3, None, "d must be given for imdb inputs"),
        ("gaussian", 0, 4, "count must be an integer >= 1, got 0"),
        ("gaussian", 3, 0, "d must be an integer >= 1, got 0"),
        ("digits", 3, 64, "d must be that of the images in digits, got 64: leave it out"),
        ("imdbb", 3, 4, "did you mean 'imdb'"),
    ],
)
def test_bad_input_is_refused(data: str, count: int, d: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        input_samples(data, count, d)
