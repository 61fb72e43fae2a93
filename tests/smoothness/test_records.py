"""Records of smoothness: one line, JSON, a table, a picture and HTML."""

from collections.abc import Callable

import pytest
from record_checks import check_record

import wordsway as ws
from wordsway.records import Record
from wordsway.smoothness import neighbourhood_bound

LAYER, X = ws.RandomAttention(3, seed=1), ws.gaussian_context(4, 3)
COST = {"seconds", "peak_mb", "dtype", "device", "evaluations"}
LOCAL = {"n", "lipschitz", "residual", "ceiling", "failure", "doubt", "products", "status", *COST}
MEASURES = ws.DiscreteMeasure(X), ws.DiscreteMeasure(X[:2], [0.3, 0.7])
RECORDS: dict[str, tuple[Callable[[], Record], set[str]]] = {
    "local": (lambda: ws.local_lipschitz(LAYER, X), LOCAL),
    "adversarial": (
        lambda: ws.adversarial_context(LAYER, 4, 1.0),
        {"head", "kind", "eigenvalue", "gamma", "radius", "steps", *LOCAL},
    ),
    "bounds": (lambda: ws.lipschitz_bounds(LAYER, 4, 1.0), {"n", "radius", "upper", "lower", "bounds"}),
    "bounds that overflow": (lambda: ws.lipschitz_bounds(LAYER, 4, 1e3), {"upper"}),
    "bound": (lambda: ws.lipschitz_bounds(LAYER, 4, 1.0).all[0], {"name", "kind", "value", "source", "assumes"}),
    "neighbourhood": (
        lambda: neighbourhood_bound(LAYER, X, 0.1),
        {"value", "radius", "n", "mean", "own", "others", *COST},
    ),
    "mean field": (
        lambda: ws.mean_field_lipschitz(LAYER, 1.0, starts=1, steps=2),
        {"value", "upper", "lower", "two_point", "derivative", "radius", "masked", "status", *COST},
    ),
    "measure": (lambda: MEASURES[0], {"points", "weights", "positions"}),
    "measure on a line": (lambda: ws.DiscreteMeasure([[1.0], [2.0]], None, [0.0, 1.0]), {"positions"}),
    "transport": (lambda: ws.wasserstein(*MEASURES), {"value"}),
}


def _shown(record: Record) -> float:
    """A number that the HTML of a record has to have."""
    if isinstance(record, ws.AdversarialContext):
        return record.lipschitz.value
    if isinstance(record, ws.Bounds):
        return next(bound.value for bound in record.all if bound.value)
    value: float = record.weights[0].item() if isinstance(record, ws.DiscreteMeasure) else record.value  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize("name", RECORDS)
def test_records(name: str) -> None:
    make, keys = RECORDS[name]
    record = make()
    check_record(record, keys, _shown(record))


def test_a_local_constant_states_what_it_was_computed_in() -> None:
    plain = ws.local_lipschitz(LAYER, X.float()).to_dict()
    assert (plain["n"], plain["dtype"], plain["device"]) == (4, "float32", "cpu")
    assert plain["evaluations"] == plain["products"]
