"""Attention as real models have it: biases, shared keys, positions."""

import math

import pytest
import torch
from smoothness.layers import VARIANTS, D, Variant, normal
from torch import Tensor

from wordsway import Attention, InputError, Rotary, respond
from wordsway.maps import PlainResponse, RelativeBias

N = 5


def by_hand(layer: Attention, X: Tensor) -> Tensor:
    """The layer word by word and head by head, from its weights."""
    assert layer.query is not None
    assert layer.key is not None
    assert layer.value is not None
    rows = []
    size, width = len(layer.query) // layer.heads, len(layer.value) // layer.key_heads
    for i in range(len(X)):
        heads = []
        for head in range(layer.heads):
            group = head // (layer.heads // layer.key_heads)
            query = _part(layer.query, layer.query_bias, head, size, X[i], i, layer.rotary)
            seen = range(i + 1) if layer.causal else range(len(X))
            keys = [_part(layer.key, layer.key_bias, group, size, X[j], j, layer.rotary) for j in seen]
            values = [_part(layer.value, layer.value_bias, group, width, X[j], j, None) for j in seen]
            scores = torch.stack([query @ key for key in keys]) / math.sqrt(size)
            if layer.relative is not None:
                table = layer.relative.table[head]  # distances -3, ..., 3
                scores = scores + torch.stack([table[3 + max(-3, min(3, j - i))] for j in seen])
            weights = torch.softmax(scores, 0)
            heads.append(weights @ torch.stack(values))
        rows.append(torch.cat(heads))
    joined = torch.stack(rows)
    if layer.output is not None:
        joined = joined @ layer.output.mT
    return joined if layer.output_bias is None else joined + layer.output_bias


def _part(
    weight: Tensor, bias: Tensor | None, head: int, size: int, x: Tensor, place: int, rotary: Rotary | None
) -> Tensor:
    rows = slice(head * size, (head + 1) * size)
    part = weight[rows] @ x + (0 if bias is None else bias[rows])
    if rotary is not None:
        m = len(rotary.frequencies)
        for i, frequency in enumerate(rotary.frequencies.tolist()):
            cos, sin = math.cos(place * frequency), math.sin(place * frequency)
            one, other = part[i].clone(), part[i + m].clone()
            part[i], part[i + m] = cos * one - sin * other, sin * one + cos * other
    return part


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_features_are_those_by_hand(variant: Variant) -> None:
    layer, X = variant.layer(), normal(1)(N, D)
    torch.testing.assert_close(layer(X), by_hand(layer, X))
    torch.testing.assert_close(layer(torch.stack([X, 2 * X]))[0], layer(X))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_pull_is_the_adjoint_of_apply(variant: Variant, name: str) -> None:
    layer, draw = variant.layer(), normal(2)
    X = draw(2, N, D)
    applied = layer.apply(name, X)
    other = draw(*applied.shape)
    torch.testing.assert_close((applied * other).sum(), (X * layer.pull(name, other)).sum())


def test_such_layers_respond_like_any_callable() -> None:
    for layer in (Variant(biases=True, output=True).layer(), Variant(relative=True).layer()):
        _check_response(layer)
    assert Variant(output=True).layer().plain


def _check_response(layer: Attention) -> None:
    X = normal(3)(N, D)
    response = respond(layer, X, 1)
    assert isinstance(response, PlainResponse)
    delta = normal(4)(D)
    moved = X.clone()
    moved[1] += delta
    expected = (layer(moved) - layer(X)).norm() / layer(X).norm()
    torch.testing.assert_close(response.change(delta)[0], expected)
    assert not layer.plain


def test_turned_products_depend_on_the_distance_alone() -> None:
    rotary, draw = Rotary([0.7, 0.1]), normal(5)
    query, key = draw(1, 5), draw(1, 5)

    def product(i: int, j: int) -> float:
        return float(rotary.turn(query, torch.tensor([i]))[0] @ rotary.turn(key, torch.tensor([j]))[0])

    assert product(3, 7) == pytest.approx(product(10, 14))
    assert product(3, 7) != pytest.approx(product(3, 6))


def test_turning_keeps_the_last_coordinates_and_back_is_the_adjoint() -> None:
    rotary, draw = Rotary([0.7, 0.1], scale=1.5), normal(6)
    rows, other = draw(2, N, 5), draw(2, N, 5)
    turned = rotary.turn(rows)
    assert torch.equal(turned[..., 4], rows[..., 4])
    torch.testing.assert_close(turned[..., :4].norm(dim=-1), 1.5 * rows[..., :4].norm(dim=-1))
    torch.testing.assert_close((turned * other).sum(), (rows * rotary.turn(other, back=True)).sum())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 4, "key_heads": 3}, "key_heads must be a divisor of heads=4, got 3"),
        ({"key_heads": 0}, "key_heads must be an integer >= 1, got 0"),
        ({"value": None, "key_heads": 1}, "query, key and value must all be given for key_heads=1, got None"),
        (
            {"key": torch.ones(3, 3), "key_heads": 2, "heads": 4},
            "rows of key must be a multiple of key_heads=2, got 3",
        ),
        ({"key_heads": 1}, "query and key must have as many rows for each head, got 4 and 4 for 2 and 1 heads"),
        ({"query_bias": torch.ones(3)}, r"query_bias must have the shape \(4,\), got \(3,\)"),
        ({"key_bias": torch.ones(4) * 1j}, "key_bias must be real numbers, got complex64"),
        ({"value_bias": torch.full((4,), math.inf)}, "value_bias must be finite"),
        ({"output_bias": torch.ones(4)}, "output_bias needs its projection to be given, got None for that"),
        ({"rotary": Rotary([1.0, 2.0])}, "turn at most the 2 coordinates of a head, got 2 frequencies, which turn 4"),
        ({"relative": RelativeBias(torch.ones(3, 5))}, "must have a row for each of 2 heads, got 3"),
        ({"relative": 3}, "relative must be a RelativeBias or None, got int"),
        ({"key_heads": 1, "key": torch.ones(2, 3), "output": torch.ones(3, 4)}, "output must read the 8 columns"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"query": torch.ones(4, 3), "key": torch.ones(4, 3), "value": torch.ones(4, 3)}
    with pytest.raises(InputError, match=message) as caught:
        Attention(**{**given, "heads": 2, **arguments})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_table_has_an_odd_number_of_distances() -> None:
    with pytest.raises(InputError, match=r"table must have an odd number 2 m . 1 of distances, got 4"):
        RelativeBias(torch.ones(2, 4))


@pytest.mark.parametrize("frequencies", [[[1.0]], [math.nan], torch.ones(2) * 1j])
def test_frequencies_must_be_finite_floats(frequencies: object) -> None:
    with pytest.raises(InputError, match="frequencies must "):
        Rotary(frequencies)
