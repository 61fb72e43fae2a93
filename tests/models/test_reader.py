"""Words that move inside small models of every family, against plain passes of the whole network."""

from typing import Any

import pytest
import torch
from torch import nn

import wordsway as ws
from models import plain
from models import small_transformers as small
from wordsway.errors import NumericalError
from wordsway.models.outputs import output_named
from wordsway.models.reader import Reader
from wordsway.models.words import Word

FAMILIES = list(small.SMALL)
DECODERS = [name for name, one in small.SMALL.items() if one.causal]
N = 7


def _ids(n: int = N) -> list[int]:
    found: list[int] = small.tokens(1, n)[0].tolist()
    return found


def _agrees(network: Any, on: str | int, n: int = N) -> None:
    """Changes, divergences and gradients for one text are those of plain passes."""
    reader = plain.reader(network, _ids(n), on)
    words = plain.words(n)
    moves = plain.random_moves(len(words), reader.rows)
    values, gradients, apart = reader.changes(words, moves, gradient=True)
    before = plain.output(network, reader.rows, on)
    assert gradients is not None
    assert (apart is not None) == (on in plain.DISTRIBUTIONS)
    size, close = (1e-3, 1e-2) if hasattr(network.base_model, "norm") else (1e-5, 1e-5)  # RMSNorm rounds to float32
    step = size * plain.random_moves(len(words), reader.rows, seed=2)
    for place, word in enumerate(words):
        now = plain.output(network, plain.moved(reader.rows, word, moves[place]), on)
        expected = plain.distance(before, now, on)
        assert float(values[place]) == pytest.approx(expected, rel=1e-10, abs=1e-14)
        if apart is not None:
            divergence = nn.functional.kl_div(before.log(), now, reduction="sum")
            assert float(apart[place]) == pytest.approx(float(divergence), rel=1e-8, abs=1e-12)
    for place in (1, len(words) - 1):  # the last has two tokens
        word = words[place]
        ahead, behind = (
            plain.output(network, plain.moved(reader.rows, word, moves[place] + turn * step[place]), on)
            for turn in (1, -1)
        )
        grad = (plain.distance(before, ahead, on) - plain.distance(before, behind, on)) / 2
        assert (
            abs(float((gradients[place] * step[place]).sum()) - grad) <= close * float(gradients[place].norm()) * size
        )
        assert not gradients[place, len(word.tokens) :].any()


def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "_fitting", lambda self, gradient: 1)


# Changes and gradients


@pytest.mark.parametrize("name", FAMILIES)
def test_changes_and_gradients_are_those_of_plain_passes(name: str) -> None:
    network = small.make(name)
    for on in plain.outputs(network):
        _agrees(network, on)


@pytest.mark.parametrize("name", ["bert-decoder", "gpt2", "llama-yarn", "mistral", "qwen2"])
def test_decoders_that_keep_what_comes_before_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _one_at_a_time(monkeypatch)
    network = small.make(name)
    for on in plain.outputs(network):
        _agrees(network, on)


@pytest.mark.parametrize("name", ["bert", "bert-decoder", "roberta", "distilbert", "gpt2", "llama", "mistral", "qwen2"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_batch_gives_what_single_passes_give(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    network, close = small.make(name, dtype=dtype), 1e-10 if dtype == torch.float64 else 1e-5
    for on in ("last", 2) if dtype == torch.float32 else ("pooled",):
        reader = plain.reader(network, _ids(), on)
        words = plain.words(N)
        moves = plain.random_moves(len(words), reader.rows)
        together, gradients, _ = reader.changes(words, moves, gradient=True)
        with monkeypatch.context() as inside:
            _one_at_a_time(inside)
            alone, single, _ = reader.changes(words, moves, gradient=True)
        assert gradients is not None
        assert single is not None
        assert together.dtype == dtype
        torch.testing.assert_close(together, alone, rtol=close, atol=close)
        torch.testing.assert_close(gradients, single, rtol=10 * close, atol=10 * close * float(single.abs().max()))


def test_the_order_of_words_and_repeated_words_do_not_matter() -> None:
    reader = plain.reader(small.make("gpt2"), _ids(), "last")
    words = [plain.words(N)[place] for place in (4, 2, 5, 2)]
    moves = plain.random_moves(4, reader.rows)
    values, _, _ = reader.changes(words, moves)
    for place, word in enumerate(words):
        alone, _, _ = reader.changes([word], moves[place : place + 1])
        assert float(alone[0]) == pytest.approx(float(values[place]), rel=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_is_the_hidden_state_of_the_whole_model(name: str) -> None:
    network = small.make(name)
    with torch.no_grad():
        states = network.base_model(torch.tensor([_ids()]), output_hidden_states=True).hidden_states
    for layer, state in enumerate(states):
        torch.testing.assert_close(plain.reader(network, _ids(), layer).before, state[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_layers_above_are_not_run(name: str) -> None:
    network = small.make(name)
    expected = plain.reader(network, _ids(), 1).before
    with torch.no_grad():
        for index in (1, 2):
            for weight in small.module(network.base_model, index).parameters():
                weight.fill_(torch.nan)
    assert torch.equal(plain.reader(network, _ids(), 1).before, expected)
    with pytest.raises(NumericalError, match="must give finite numbers for the text, got others: check its weights"):
        plain.reader(network, _ids(), "last")


@pytest.mark.parametrize("on", ["last", "pooled", 1, "next", "class"])
def test_pulled_directions_are_products_with_the_jacobian(on: str | int) -> None:
    network = small.make("bert-classifier" if on == "class" else "gpt2")
    reader = plain.reader(network, _ids(), on)
    source = torch.Generator().manual_seed(3)
    u = torch.randn(2, *reader.before.shape, generator=source, dtype=torch.float64)
    step = 1e-5 * torch.randn(reader.rows.shape, generator=source, dtype=torch.float64)
    ahead, behind = (plain.output(network, reader.rows + turn * step, on) for turn in (1, -1))
    pulled = reader.pull(u)
    for place in range(2):
        expected = float((u[place] * (ahead - behind)).sum() / 2)
        assert float((pulled[place] * step).sum()) == pytest.approx(expected, rel=1e-6)


# What comes before a word


@pytest.mark.parametrize("name", DECODERS)
def test_rows_before_the_word_do_not_move(name: str) -> None:
    reader = plain.reader(small.make(name), _ids(), "last")
    word = plain.words(N)[4]
    moved = plain.moved(reader.rows, word, plain.random_moves(1, reader.rows)[0])
    with torch.no_grad():
        rows = reader._features(moved[None], 0)
    torch.testing.assert_close(rows[0, :4], reader.before[:4], rtol=1e-10, atol=1e-10)
    assert float((rows[0, 4:] - reader.before[4:]).norm(dim=1).min()) > 1e-6


@pytest.mark.parametrize("name", ["bert", "bert-decoder", "gpt2", "llama", "qwen2"])
@pytest.mark.parametrize("on", ["last", 2])
def test_a_decoder_runs_over_what_comes_after_only(name: str, on: str | int) -> None:
    reader = plain.reader(small.make(name), _ids(), on)
    words, moves = plain.words(N)[4:6], plain.random_moves(2, reader.rows)
    reader.changes(words, moves)
    lengths: list[int] = []
    handle = reader.network.register_forward_pre_hook(
        lambda _, given, named: lengths.append(named["inputs_embeds"].shape[1]), with_kwargs=True
    )
    reader.changes(words, moves)
    handle.remove()
    assert lengths == [N if name == "bert" else N - 4]


@pytest.mark.parametrize("window", [2, 4, 6, 20])
@pytest.mark.parametrize("together", [True, False])
def test_a_model_with_a_window_is_read_right(window: int, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not together:
        _one_at_a_time(monkeypatch)
    network = small.make("mistral", sliding_window=window)
    for on in ("last", 1, 2):
        _agrees(network, on, n=10)


def test_some_layers_may_have_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    _one_at_a_time(monkeypatch)
    some: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    network = small.make("qwen2", **some)
    for on in plain.outputs(network):
        _agrees(network, on, n=10)


def test_a_decoder_that_counts_positions_anew_is_read_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """RoBERTa does where it is given embeddings, so that what it keeps must not be used."""
    _one_at_a_time(monkeypatch)
    network = plain.make("RobertaConfig", "RobertaForCausalLM", **small.SMALL["bert"].options, is_decoder=True)
    for on in ("last", 1, "next"):
        _agrees(network, on)


@pytest.mark.parametrize("padding", [None, 0])
def test_a_decoder_may_classify(padding: int | None) -> None:
    marks = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": padding, "num_labels": 3}
    _agrees(plain.make("GPT2Config", "GPT2ForSequenceClassification", **small.SMALL["gpt2"].options, **marks), "class")


def test_half_precision_is_measured_in_single_precision() -> None:
    for name, on in (("gpt2", "next"), ("bert", "last")):
        exact, network = small.make(name), small.make(name, dtype=torch.bfloat16)
        reader = plain.reader(network, _ids(), on)
        words = plain.words(N)[3:6]
        moves = plain.random_moves(3, reader.rows)
        values, gradients, _ = reader.changes(words, moves, gradient=True)
        assert gradients is not None
        assert (values.dtype, gradients.dtype) == (torch.float32, torch.bfloat16)
        for place, word in enumerate(words):
            rows = reader.rows.double()
            expected = plain.change(exact, rows, plain.moved(rows, word, moves[place].double()), on)
            assert float(values[place]) == pytest.approx(expected, rel=0.1, abs=0.02)


# What is left behind


def _state(network: Any) -> list[Any]:
    parts = list(network.modules())
    hooks = [name for part in parts for name, table in vars(part).items() if "hooks" in name and table]
    flags = [(weight.requires_grad, weight.grad is None) for weight in network.parameters()]
    return [hooks, flags, [part.training for part in parts], torch.is_grad_enabled()]


def _fail(*_: Any) -> None:
    raise RuntimeError("half-way")


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("on", ["last", 1])
def test_nothing_is_left_on_the_network(name: str, on: str | int) -> None:
    network = small.make(name).train()
    given = _state(network)
    assert all(flag for flag, _ in given[1])
    model = ws.load(network)
    own = _state(model.network)
    reader = Reader(model, _ids(), output_named(on, model.layers, model.network, model.name))
    words = plain.words(N)[2:5]
    moves = plain.random_moves(3, reader.rows)
    reader.changes(words, moves, gradient=True)
    reader.pull(torch.ones(1, *reader.before.shape, dtype=torch.float64))
    with pytest.raises(IndexError):
        reader.changes([Word(0, "far", 0, 0, (40,))], moves[:1], gradient=True)
    handle = small.module(reader.network.base_model, 0).register_forward_hook(_fail)
    with pytest.raises(RuntimeError, match="half-way"):
        reader.changes(words, moves, gradient=True)
    handle.remove()
    assert _state(network) == given
    assert _state(model.network) == own
    assert torch.is_grad_enabled()
    assert not any(flag for flag, _ in own[1])
    assert not any(own[2])
