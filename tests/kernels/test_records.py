"""Records of kernels: one line, JSON, a table, a picture and HTML."""

from collections.abc import Callable

import pytest
from record_checks import check_record

import wordsway as ws
from wordsway import kernels
from wordsway.records import Record

NETWORK, X = ws.Network.drawn([5, 6, 6]), ws.gaussian_context(4, 5)
Y = X[:, 0].sign()
COST = {"seconds", "peak_mb", "dtype", "device", "evaluations"}
ROBUST = {"kind", "samples", "d", "width", "activation", "seed", "sensitivity", "output", "fit", *COST}
TERMS = {"interaction", "interaction_centred", "interaction_law", "bound", "lower_bound", "lambda_min"}
TERMS |= {"lambda_min_residual", "lambda_max_centred"}
RECORDS: dict[str, tuple[Callable[[], Record], set[str], str]] = {
    "eigenvalue": (
        lambda: ws.smallest_eigenvalue(ws.ntk(NETWORK, X)),
        {"smallest_eigenvalue", "residual", "status", "method", "floor"},
        "smallest_eigenvalue",
    ),
    "chain": (lambda: kernels.ntk_chain(NETWORK, X), {"scale", "distance", "smallest_twice"}, "scale"),
    "flow": (
        lambda: kernels.gradient_flow(NETWORK, X, Y, [0.0, 0.1]),
        {"times", "linear", "actual", "bound", "lambda_min", "smallest_eigenvalue"},
        "actual",
    ),
    "descent": (lambda: kernels.descend(NETWORK, X, Y, 3), {"loss", "interpolates", "steps"}, "loss"),
    "robustness": (lambda: ws.feature_robustness("rf", X, Y, X[0], 40, terms=True), ROBUST | TERMS, "sensitivity"),
    "terms": (lambda: kernels.FeatureModel("ntk", X, Y, 40).robustness(X[0], True).terms, TERMS, "bound"),  # type: ignore[dict-item, return-value]
    "sweep": (
        lambda: kernels.robustness_sweep("rf", X, Y, X[0], [20, 30], [3, 4], ["tanh"]),
        {"kind", "points", *COST},
        "sensitivity",
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_records(name: str) -> None:
    make, keys, shown = RECORDS[name]
    record = make()
    check_record(record, keys, record.rows()[0][shown])


def test_terms_are_left_out_by_default() -> None:
    assert set(ws.feature_robustness("rf", X, Y, X[0], 40).to_dict()) == ROBUST
