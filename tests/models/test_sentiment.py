"""The classifier for demonstrations: fitted once, kept, and the same again."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import wordsway as ws
from wordsway.models import sentiment, transformer


@pytest.fixture
def few_reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a fit to few reviews, which the other tests must not get."""
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(sentiment, "_TRAINING", 120)
    monkeypatch.setattr(sentiment, "_HELD_OUT", 80)
    yield tmp_path
    transformer._sentiment.cache_clear()


def _load() -> ws.Model:
    transformer._sentiment.cache_clear()
    return ws.load("minilm-sentiment")


def test_the_head_is_fitted_once_and_kept(few_reviews: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        first = _load()
        again = _load()
    assert sum("fitting the sentiment head" in message for message in caplog.messages) == 1
    assert sum("accuracy on 80 held-out reviews" in message for message in caplog.messages) == 2
    assert torch.equal(first.network.classifier.weight, again.network.classifier.weight)
    assert len(list(few_reviews.iterdir())) == 1
    next(few_reviews.iterdir()).unlink()
    assert torch.equal(first.network.classifier.weight, _load().network.classifier.weight)


def test_it_is_the_linear_head_of_the_mean_row(few_reviews: Path) -> None:
    model, encoder = _load(), ws.load("minilm")
    ids = torch.tensor([model.tokens("A fine film.")])
    with torch.no_grad():
        rows = encoder.network(input_ids=ids, attention_mask=torch.ones_like(ids))[0]
        logits = model.network.classifier(rows.mean(1))
        padded = torch.nn.functional.pad(ids, (0, 3))
        mask = (torch.arange(padded.shape[1]) < ids.shape[1]).long()[None]
        torch.testing.assert_close(model.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits, logits)
        torch.testing.assert_close(model.network(input_ids=padded, attention_mask=mask).logits, logits)
    assert model.network.config.id2label == {0: "negative", 1: "positive"}
    assert model.features("A fine film.", on="class").output.classes == ("negative", "positive")


def test_it_knows_good_from_bad(few_reviews: Path) -> None:
    model = _load()
    assert 0.55 < model.network.config.wordsway_accuracy <= 1.0
    for text, label in (("a wonderful, moving film", 1), ("a terrible, boring mess", 0)):
        phi = model.features(text, on="class")
        assert int(phi(phi.embedded).argmax()) == label
