"""Reviews as contexts and the encoder at layer 0, against transformers itself."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.conftest import MODEL, Library, load_library
from wordsway.contexts import normalize
from wordsway.errors import InputError
from wordsway.models import encoder, files, review_contexts, tokenizer, vocabulary_embeddings


@pytest.fixture(scope="module")
def bert() -> tuple[Any, Any]:
    from transformers import AutoTokenizer, BertModel

    return AutoTokenizer.from_pretrained(MODEL), BertModel.from_pretrained(MODEL)  # comes in evaluation mode


def _layer_zero(bert: tuple[Any, Any], text: str, n: int) -> torch.Tensor:
    """Embed the first n tokens by transformers itself, all 384 dimensions, float32."""
    tokenizer, model = bert
    tokens = tokenizer(text, truncation=False, padding=False, return_tensors="pt")["input_ids"][:, :n]
    with torch.no_grad():
        return torch.as_tensor(model.embeddings(input_ids=tokens)[0])


# What a context is


@pytest.mark.parametrize(("n", "d"), [(1, 384), (8, 1), (30, 96), (100, 384)])
def test_contexts_are_layer_zero_of_the_model_as_transformers_computes_it(
    library: Library, bert: tuple[Any, Any], n: int, d: int
) -> None:
    contexts, labels = review_contexts(40, n, d)
    expected = torch.stack([normalize(_layer_zero(bert, text, n)[:, :d].double()) for text in library.texts])
    tolerance = 1e-6 * (expected.abs().max().item() + 1)
    for context, label in zip(contexts, labels, strict=True):
        distance = (expected - context).flatten(1).abs().amax(dim=1)  # one number a review
        matches = [library.labels[i] for i in torch.nonzero(distance < tolerance).flatten().tolist()]
        assert label in matches


def test_embeddings_agree_with_transformers_before_rescaling(bert: tuple[Any, Any]) -> None:
    text = "An uncanny, unforgettable film: the cinematography is breathtaking." * 40
    tokens = bert[0](text, truncation=False)["input_ids"][:512]
    ours = encoder.load_embeddings().embed(torch.tensor(tokens), torch.arange(len(tokens)))
    assert (ours.float() - _layer_zero(bert, text, 512)).abs().max() < 1e-6


def test_every_review_is_drawn_once_and_short_repeated_or_foreign_ones_never(library: Library) -> None:
    contexts, labels = review_contexts(40, 30, 8)
    assert len({context.numpy().tobytes() for context in contexts}) == 40
    assert labels.sum() == 0
    with pytest.raises(InputError, match=r"at most 40, twice the smaller of 20 positive and 20 negative .* n=30 .* 41"):
        review_contexts(41, 30, 8)


def test_short_reviews_count_where_they_are_long_enough(library: Library) -> None:
    assert len(review_contexts(42, 4, 8)[0]) == 42  # [CLS], short, too, !
    with pytest.raises(InputError, match="at most 40"):
        review_contexts(42, 5, 8)  # the fifth would be [SEP]


def test_a_repeated_text_counts_once_but_a_common_opening_does_not_make_a_repetition(library: Library) -> None:
    assert len(load_library().labels) == 44
    contexts, _ = review_contexts(42, 1, 8)
    assert len({context.numpy().tobytes() for context in contexts}) == 1  # all open with [CLS]
    with pytest.raises(InputError, match="at most 42, twice the smaller of 21 positive and 21 negative"):
        review_contexts(43, 1, 8)


def test_row_zero_is_the_opening_token_and_other_rows_are_vocabulary_embeddings(library: Library) -> None:
    contexts, _ = review_contexts(6, 30, 64)
    for row in (0, 1, 29):
        table, words = vocabulary_embeddings(64, position=row)
        nearest = (table[None] - contexts[:, row, None]).norm(dim=2).min(dim=1)
        assert nearest.values.max() < 1e-12
        if row == 0:
            assert {words[i] for i in nearest.indices.tolist()} == {"[CLS]"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_have_norm_root_d_in_the_dtype_asked_for(dtype: torch.dtype) -> None:
    contexts, labels = review_contexts(4, 50, 192, dtype=dtype)
    assert contexts.dtype == labels.dtype == dtype
    assert contexts.shape == (4, 50, 192)
    torch.testing.assert_close(contexts.norm(dim=2), torch.full((4, 50), 192**0.5, dtype=dtype))


# Which reviews are drawn


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), few=st.integers(1, 40), many=st.integers(1, 40))
def test_samples_are_balanced_and_do_not_depend_on_their_number(
    library: Library, seed: int, few: int, many: int
) -> None:
    few, many = sorted((few, many))
    contexts, labels = review_contexts(many, 12, 5, seed=seed)
    again, labels_again = review_contexts(few, 12, 5, seed=seed)
    assert contexts[:few].numpy().tobytes() == again.numpy().tobytes()
    assert torch.equal(labels[:few], labels_again)
    assert set(labels.tolist()) <= {-1.0, 1.0}
    assert abs(labels.sum().item()) == many % 2


def test_the_seed_decides_which_reviews_and_which_label_is_in_excess(library: Library) -> None:
    draws = [review_contexts(1, 30, 8, seed=seed) for seed in range(12)]
    assert len({context.numpy().tobytes() for context, _ in draws}) > 4
    assert {label.item() for _, label in draws} == {-1.0, 1.0}


def test_global_randomness_is_neither_read_nor_set(library: Library) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = review_contexts(3, 30, 8, seed=5)[0]
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, review_contexts(3, 30, 8, seed=5)[0])


def test_the_real_reviews_are_all_there() -> None:
    labels_of_all = load_library().labels
    assert len(labels_of_all) == 25_000
    assert labels_of_all.astype(int).sum() == 0
    contexts, labels = review_contexts(64, 512, 2)
    assert contexts.shape == (64, 512, 2)
    assert labels.sum() == 0


# The vocabulary


def test_vocabulary_embeddings_have_one_normalised_row_for_each_entry() -> None:
    table, words = vocabulary_embeddings()
    assert table.shape == (30522, 384)
    assert table.dtype == torch.float64
    assert words[101] == "[CLS]"
    assert words[tokenizer.from_file(files.locate(None, files.TOKENIZER), 30522, 512).split("smile")[1]] == "smile"
    assert len(set(words)) == 30522
    torch.testing.assert_close(table.norm(dim=1), torch.full((30522,), 384**0.5, dtype=torch.float64))
    cut, _ = vocabulary_embeddings(3, position=511, dtype=torch.float32)
    assert cut.shape == (30522, 3)
    assert cut.dtype == torch.float32


# Bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be"),
        ({"count": -3}, "count must be"),
        ({"count": 2.5}, "count must be"),
        ({"count": 10**9}, "count must be at most 25000, .* got 1000000000"),
        ({"n": 0}, "n must be"),
        ({"n": 513}, "n must be at most 512, .* got 513"),
        ({"n": "12"}, "n must be"),
        ({"d": 0}, "d must be"),
        ({"d": 385}, "d must be at most 384, .* got 385"),
        ({"seed": -1}, "seed must be"),
        ({"seed": None}, "seed must be"),
        ({"dtype": torch.float16}, "dtype must be torch.float32 or torch.float64, got torch.float16"),
        ({"dtype": torch.int64}, "dtype must be"),
    ],
)
def test_bad_requests_are_refused_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        review_contexts(**{"count": 2, "n": 10, "d": 4, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments", [{"d": 0}, {"d": 400}, {"position": -1}, {"position": 512}, {"dtype": torch.int8}]
)
def test_bad_requests_for_the_vocabulary_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be"):
        vocabulary_embeddings(**arguments)


def test_contexts_that_cannot_fit_are_refused_before_they_are_made(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wordsway.memory.available", lambda: 1000)
    monkeypatch.setattr("wordsway.memory.SMALL", 0)
    with pytest.raises(InputError, match=r"4 contexts of 30 x 8 .* needs 7\.7 kB, but 1\.0 kB are free"):
        review_contexts(4, 30, 8)
