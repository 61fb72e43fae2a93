"""What networks compute from embeddings, by plain passes through the whole of them: the twin of `TextFeatures`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import wordsway as ws
from models import small_transformers as small
from models import tiny
from wordsway.models.response import Span, TextFeatures, TransformerResponse

DISTRIBUTIONS = ("next", "class")


def output(network: Any, rows: Tensor, on: str | int) -> Tensor:
    """The output for one text of embeddings (n, e): rows, a row of length 1, or probabilities."""
    rows = rows.clone()  # some networks write into it
    with torch.no_grad():
        if on in DISTRIBUTIONS:
            logits: Tensor = network(inputs_embeds=rows[None]).logits[0]
            return (logits[-1] if on == "next" else logits).softmax(-1)
        given = network.base_model(inputs_embeds=rows[None], output_hidden_states=True)
        if isinstance(on, int):
            found: Tensor = given.hidden_states[on][0]
            return found
        last: Tensor = given[0][0]
        if on == "last":
            return last
        mean: Tensor = last.mean(0)
        return mean.div(mean.norm())


def change(network: Any, before: Tensor, rows: Tensor, on: str | int) -> float:
    """How far the output for `rows` is from that for `before`."""
    return distance(output(network, before, on), output(network, rows, on), on)


def distance(before: Tensor, now: Tensor, on: str | int) -> float:
    """The total variation of probabilities, or the relative change of anything else."""
    if on in DISTRIBUTIONS:
        return float((now - before).abs().sum() / 2)
    return float((now - before).norm() / before.norm())


def outputs(network: Any) -> list[str | int]:
    """All that a network has, with the first, a middle and the last layer."""
    kind = type(network).__name__
    found: list[str | int] = ["last", "pooled", 0, 1, network.config.num_hidden_layers]
    if kind.endswith(("ForCausalLM", "LMHeadModel")):
        found.append("next")
    return [*found, "class"] if kind.endswith("ForSequenceClassification") else found


def make(config: str, kind: str, **options: Any) -> Any:
    """Any network of transformers by the names of its classes, with random parameters everywhere, in float64."""
    import transformers

    settings = getattr(transformers, config)(**{"vocab_size": small.VOCABULARY, **options})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = getattr(transformers, kind)(settings).eval()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(std=0.3)
    return network.double()


def features(network: Any, ids: Sequence[int], on: str | int) -> TextFeatures:
    return model_features(ws.load(network), ids, on)


def model_features(model: ws.Model, ids: Sequence[int], on: str | int) -> TextFeatures:
    return TextFeatures(model, ids, on)


def spans(n: int) -> list[Span]:
    """Words for n tokens: one per token, except for the last word, which has two."""
    return [*((row,) for row in range(n - 2)), (n - 2, n - 1)]


def moved(rows: Tensor, span: Sequence[int], move: Tensor) -> Tensor:
    """Embeddings (n, e) with the rows of one word moved by (m, e), or by as many numbers."""
    perturbed = rows.clone()
    perturbed[list(span)] += move.reshape(-1, rows.shape[1])[: len(span)]
    return perturbed


def random_moves(count: int, rows: Tensor, seed: int = 1) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, rows.shape[1], dtype=torch.float64, generator=source).to(rows)


def ids(n: int = 7) -> list[int]:
    """A text of n tokens."""
    numbers: list[int] = small.tokens(1, n)[0].tolist()
    return numbers


def check(network: Any, on: str | int, n: int = 7, derivatives: bool = True) -> None:
    """Changes, divergences and gradients for one text are those of plain passes."""
    words = spans(n)
    phi = features(network, ids(n), on)
    response = phi.along(words)
    X, e = phi.embedded, phi.embedded.shape[1]
    delta = random_moves(len(words), X).flatten(1)
    values, gradients = response.change(delta)
    divergences, features_there = response.divergence(delta), response.features(delta)
    before = output(network, X, on)
    torch.testing.assert_close(phi(X), before, rtol=1e-10, atol=1e-12)
    assert gradients is not None
    assert (divergences is not None) == (on in DISTRIBUTIONS)
    size, close = (1e-3, 1e-2) if hasattr(network.base_model, "norm") else (1e-5, 1e-5)  # RMSNorm rounds to float32
    step = size * random_moves(len(words), X, seed=2).flatten(1)
    for place, span in enumerate(words):
        now = output(network, moved(X, span, delta[place]), on)
        assert float(values[place]) == pytest.approx(distance(before, now, on), rel=1e-10, abs=1e-14)
        torch.testing.assert_close(features_there[place], now, rtol=1e-9, atol=1e-12)
        if divergences is not None:
            expected = nn.functional.kl_div(before.log(), now, reduction="sum")
            assert float(divergences[place]) == pytest.approx(float(expected), rel=1e-8, abs=1e-12)
    for place in (1, len(words) - 1) if derivatives else ():
        ahead, behind = (
            output(network, moved(X, words[place], delta[place] + turn * step[place]), on) for turn in (1, -1)
        )
        measured = (distance(before, ahead, on) - distance(before, behind, on)) / 2
        along = float((gradients[place] * step[place]).sum())
        assert abs(along - measured) <= close * float(gradients[place].norm()) * size
        assert not gradients[place, len(words[place]) * e :].any()


def rows_run(response: TransformerResponse, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of a text go through the network in each pass, once what comes before the words is known."""
    delta = random_moves(len(response.spans), response.X)[:, 0]
    response.change(delta)
    lengths: list[int] = []
    run = TextFeatures.run

    def note(self: TextFeatures, batch: Tensor, *rest: Any, **options: Any) -> Tensor:
        lengths.append(batch.shape[1])
        return run(self, batch, *rest, **options)

    monkeypatch.setattr(TextFeatures, "run", note)
    response.change(delta)
    return lengths


def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every batch be one text: decoders then keep what comes before each word."""
    monkeypatch.setattr(TextFeatures, "batch_size", lambda self, gradient: 1)


def with_words(
    name: str, folder: Path, pieces: Sequence[str] = tiny.PIECES, template: str = "[CLS] $A [SEP]", **options: Any
) -> ws.Model:
    """A small transformer that reads texts with a small WordPiece tokenizer."""
    tokenizer = tiny.write_tokenizer(folder, list(pieces), template)
    network = small.make(name, vocab_size=tokenizer.get_vocab_size(), **options)
    return ws.load(network, tokenizer=tokenizer)
