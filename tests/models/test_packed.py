"""Linear layers on copies of their weights: the same numbers, of the weights as they are, and nothing left behind."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import wordsway as ws
from wordsway.models import packed
from wordsway.models.outputs import output_named
from wordsway.models.packed import PackedLayers
from wordsway.models.rewrites import Rewrite, Rewriter
from wordsway.packing import linear


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 8, bias=False))


def _value_and_gradient(network: nn.Module, inputs: Tensor, layers: PackedLayers | None) -> tuple[Tensor, Tensor]:
    given = inputs.clone().requires_grad_(True)
    if layers is None:
        value = network(given)
        return value, torch.autograd.grad(value.square().sum(), given)[0]
    with layers.used(gradients=True):
        value = network(given)
        return value, torch.autograd.grad(value.square().sum(), given)[0]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each product on a copy."""
    made: list[int] = []

    def counted(*arguments: Any) -> Tensor:
        made.append(1)
        return linear(*arguments)

    monkeypatch.setattr(packed, "linear", counted)
    return made


def test_values_and_gradients_are_those_of_the_layers(products: list[int]) -> None:
    network = _network()
    for shape in ((3, 24), (2, 5, 24), (600, 24)):
        inputs = torch.randn(shape)
        layers = PackedLayers(network)
        plain = _value_and_gradient(network, inputs, None)
        count = len(products)
        torch.testing.assert_close(_value_and_gradient(network, inputs, layers), plain, rtol=1e-5, atol=1e-5)
        assert len(products) == count + 4  # two products there, two back
        with layers.used():
            value = network(inputs)
        assert not value.requires_grad
        torch.testing.assert_close(value, plain[0].detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: torch.nn.init.ones_(weight),
        lambda weight: weight.data.mul_(2),
        lambda weight: weight.data.__setitem__((0, 0), 5.0),
    ],
)
def test_weights_that_changed_are_read_again(change: Callable[[Any], Any]) -> None:
    network, inputs = _network(), torch.randn(3, 24)
    before = _value_and_gradient(network, inputs, PackedLayers(network))
    change(network[0].weight)
    after = _value_and_gradient(network, inputs, PackedLayers(network))
    torch.testing.assert_close(after, _value_and_gradient(network, inputs, None), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(before[0], after[0])


def test_nothing_is_left_behind_and_other_threads_see_nothing(products: list[int]) -> None:
    network, inputs = _network(), torch.randn(3, 24)
    names = [set(layer.__dict__) for layer in network]

    def fail() -> None:
        with PackedLayers(network).used():
            thread = threading.Thread(target=lambda: network(inputs))
            thread.start()
            thread.join()
            assert products == []
            network(inputs)
            assert len(products) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.is_grad_enabled()
    assert [set(layer.__dict__) for layer in network] == names


def test_networks_that_do_not_fit_run_as_they_are(products: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    double, inputs = _network().double(), torch.randn(3, 24).double()
    with PackedLayers(double).used():
        double(inputs)
    monkeypatch.setattr(packed, "_MOST", 10)
    single = _network()
    with PackedLayers(single).used():
        single(inputs.float())
    assert products == []


def test_rewritten_texts_use_them(products: list[int]) -> None:
    model = ws.load("minilm")
    read = model.read("a good film")
    rewriter = Rewriter(model, read, output_named(model, "pooled"))
    products.clear()
    rewriter.effects([Rewrite(read.scored[1], "bad")])
    assert len(products) == sum(isinstance(one, nn.Linear) for one in model.network.modules())
    ids = torch.tensor([model.tokens("a bad film")])
    with torch.no_grad():
        rows = model.network(input_ids=ids)[0]
    torch.testing.assert_close(
        rewriter.readings(rewriter.tokens([Rewrite(read.scored[1], "bad")]))[0],
        rewriter.output.read(rows)[0],
        rtol=1e-4,
        atol=1e-5,
    )
