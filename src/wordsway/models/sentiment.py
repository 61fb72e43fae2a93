"""A classifier for demonstrations: the offline encoder, with a linear head that is fitted to short film reviews."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wordsway.data import cache as kept
from wordsway.data import offline
from wordsway.data.reviews import short_reviews
from wordsway.models.tokenizer import Tokenizer
from wordsway.seeds import generator
from wordsway.threads import one_thread

_LOG = logging.getLogger(__name__)

LABELS = ("negative", "positive")
_VERSION = 1  # of the fit: raise it with any change below
_TRAINING, _HELD_OUT = 3000, 1000  # reviews: 25 s of one core, of which nearly all is the encoder
_PENALTY = 0.01  # on the squared weights of standardised features; from 1e-4 to 0.1 the accuracy differs by 0.02
_TOKENS = 1024  # of a batch: larger ones are slower


@dataclass(frozen=True)
class Head:
    """Weights (2, d) and biases (2,) of the linear head, and its accuracy on reviews that it was not fitted to."""

    weight: Tensor
    bias: Tensor
    accuracy: float

    def dumps(self) -> bytes:
        values = {"weight": self.weight.tolist(), "bias": self.bias.tolist(), "accuracy": self.accuracy}
        return json.dumps(values).encode()

    @classmethod
    def loads(cls, payload: bytes) -> Head:
        values = json.loads(payload)
        return cls(torch.tensor(values["weight"]), torch.tensor(values["bias"]), values["accuracy"])


def sentiment_network(encoder: Any, tokenizer: Tokenizer) -> Any:
    """Return the classifier over a BERT encoder, whose weights it shares.

    The head is fitted at the first use and kept in the cache folder. The fit runs on one thread, so that it gives the
    same numbers whatever the number of cores.
    """
    path = kept.cache_folder() / f"sentiment-{_digest(tokenizer)}.json"
    payload = kept.load(path)
    if payload is None:
        _LOG.warning("fitting the sentiment head to %d short reviews: about half a minute, once", _TRAINING)
        with one_thread():
            head = _fit(encoder, tokenizer)
        kept.save(path, head.dumps())
    else:
        head = Head.loads(payload)
    _LOG.info("accuracy on %d held-out reviews: %.3f", _HELD_OUT, head.accuracy)
    return _assemble(encoder, head)


def _digest(tokenizer: Tokenizer) -> str:
    """Checksum of everything that the fit depends on."""
    parts = (offline.WEIGHTS.sha256, offline.REVIEWS.sha256, tokenizer.digest, _VERSION, _TRAINING, _HELD_OUT, _PENALTY)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _fit(encoder: Any, tokenizer: Tokenizer) -> Head:
    """Logistic regression on the mean of the encoder's last rows."""
    texts, labels = short_reviews()
    chosen = generator(0, "sentiment").permutation(len(texts))[: _TRAINING + _HELD_OUT]
    encodings = tokenizer.backend.encode_batch_fast([texts[place] for place in chosen])
    features = _features(encoder, [encoding.ids for encoding in encodings]).double()
    positive = torch.from_numpy(labels[chosen] > 0).double()
    seen, held_out = features[:_TRAINING], features[_TRAINING:]
    mean, deviation = seen.mean(0), seen.std(0)
    slopes = _logistic((seen - mean) / deviation, positive[:_TRAINING])
    weight = slopes[:-1] / deviation
    bias = slopes[-1] - weight @ mean
    accuracy = float(((held_out @ weight + bias > 0) == (positive[_TRAINING:] > 0)).double().mean())
    # half to each class, so that their difference is the logit of "positive"
    return Head(torch.stack([-weight, weight]).float() / 2, torch.stack([-bias, bias]).float() / 2, accuracy)


def _features(encoder: Any, texts: Sequence[Sequence[int]]) -> Tensor:
    """The mean of the last rows of each text, (N, d), in batches of texts of one length: no padding."""
    features = torch.empty(len(texts), encoder.config.hidden_size)
    lengths = np.array([len(ids) for ids in texts])
    with torch.no_grad():
        for length in np.unique(lengths):
            places = np.flatnonzero(lengths == length)
            for batch in np.array_split(places, -(-len(places) * length // _TOKENS)):
                ids = torch.tensor([texts[place] for place in batch])
                features[batch] = encoder(input_ids=ids, attention_mask=torch.ones_like(ids))[0].mean(1)
    return features


def _logistic(features: Tensor, positive: Tensor) -> Tensor:
    """Weights and, last, the bias that minimise the mean logistic loss with a ridge on the weights."""
    slopes = torch.zeros(features.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([slopes], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = features @ slopes[:-1] + slopes[-1]
        value = nn.functional.binary_cross_entropy_with_logits(logits, positive)
        value = value + _PENALTY * slopes[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return slopes.detach()


@cache
def _network_class() -> Any:
    from transformers import BertPreTrainedModel
    from transformers.modeling_outputs import SequenceClassifierOutput

    class MeanPooledForSequenceClassification(BertPreTrainedModel):  # type: ignore[no-untyped-call]
        """A linear head over the mean of an encoder's rows."""

        base_model_prefix = "bert"

        def __init__(self, config: Any, encoder: Any, head: Head) -> None:
            super().__init__(config)
            self.bert = encoder
            self.classifier = nn.Linear(*head.weight.shape[::-1])
            with torch.no_grad():
                self.classifier.weight.copy_(head.weight)
                self.classifier.bias.copy_(head.bias)

        def forward(self, attention_mask: Tensor, **inputs: Any) -> Any:
            rows = self.bert(attention_mask=attention_mask, **inputs)[0]
            counted = attention_mask[..., None].to(rows)
            return SequenceClassifierOutput(logits=self.classifier((rows * counted).sum(1) / counted.sum(1)))

    return MeanPooledForSequenceClassification


def _assemble(encoder: Any, head: Head) -> Any:
    config = type(encoder.config).from_dict(
        {**encoder.config.to_dict(), "id2label": dict(enumerate(LABELS)), "wordsway_accuracy": head.accuracy}
    )
    config._attn_implementation = encoder.config._attn_implementation
    return _network_class()(config, encoder, head)
