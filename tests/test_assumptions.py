"""Assumptions of the theorems: the numbers that they compare, against plain code."""

import math

import numpy as np
import pytest
import torch
from record_checks import check_record
from torch import Tensor

import wordsway as ws
from wordsway.sensitivity import Assumption, Assumptions
from wordsway.sensitivity.assumptions import THEOREMS, summarise

NORMS, SHORT, WIDE = "|x_j| = sqrt(d) (Assumption 3.1)", "d / log^4 d = Omega(n)", "k = Omega(D)"
MEAN, CONCENTRATION = "E X = 0", "Lipschitz concentration"


def _by_name(record: Assumptions, theorem: str) -> dict[str, Assumption]:
    return {check.assumption: check for check in record.of(theorem)}


def _samples(count: int = 200, n: int = 5, d: int = 16) -> Tensor:
    return torch.stack([ws.gaussian_context(n, d, seed) for seed in range(count)])


@pytest.mark.parametrize(("n", "d", "met"), [(1, 8192, True), (2, 8192, False), (250, 768, False)])
def test_the_length_of_a_context_is_compared_with_its_dimension(n: int, d: int, met: bool) -> None:
    for phi, theorem in (("raf", "Theorem 5.1"), ("qkv", "Remark 5.2")):
        short = _by_name(ws.assumptions(phi, n=n, d=d), theorem)[SHORT]
        assert (short.value, short.met) == (n, met)
        assert short.limit == pytest.approx(d / math.log(d) ** 4)


def test_map_objects_have_the_theorems_of_their_kind_and_their_own_sizes() -> None:
    X = ws.gaussian_context(4, 16)
    q = torch.eye(16)
    assert [check.theorem for check in ws.assumptions(ws.RandomAttention(16), X).checks] == ["Theorem 5.1"] * 2
    assert ws.assumptions(ws.Attention(q, q, q), X).of("Remark 5.2")
    for other in (
        ws.RandomAttention(16, "relu"),
        ws.Attention(q, q, q, heads=2),
        ws.Attention(q, q, q, causal=True),
        ws.Attention(q, q, q, query_bias=torch.ones(16)),
    ):
        assert ws.assumptions(other, X).checks == ()
    narrow = _by_name(ws.assumptions(ws.RandomFeatures(4, 16, 40), X), "Theorem 4.1")
    assert (narrow[WIDE].value, narrow[WIDE].limit, narrow[WIDE].met) == (64, 40, False)
    deep = _by_name(ws.assumptions(ws.DeepRandomFeatures(4, 16, 5, 40), X), "Theorem 4.3")
    assert deep["k = Theta(D)"].value == pytest.approx(64 / 40)
    assert deep["L = o(log k)"].value == 5
    assert deep["L = o(log k)"].limit == pytest.approx(math.log(40))
    assert not deep["L = o(log k)"].met


def test_rows_of_another_norm_are_noticed() -> None:
    X = ws.gaussian_context(4, 16)
    assert _by_name(ws.assumptions("raf", X), "Theorem 5.1")[NORMS].met
    X[2] *= 1.25
    norms = _by_name(ws.assumptions("raf", X), "Theorem 5.1")[NORMS]
    assert norms.value == pytest.approx(0.25)
    assert norms.met is False


def test_sizes_of_training_sets() -> None:
    record = ws.assumptions("rf", n=40, d=384, samples=1300)
    checks = _by_name(record, "Theorem 6.3")
    log = math.log(1300)
    assert checks["N log^3 N = o(k)"].value == pytest.approx(1300 * log**3)
    assert checks["N log^3 N = o(k)"].limit == 40 * 384
    assert checks["N log^3 N = o(k)"].met is False
    assert checks["N log^4 N = o(D^2)"].value == pytest.approx(1300 * log**4)
    assert checks["N log^4 N = o(D^2)"].met
    for name in (MEAN, CONCENTRATION, "samples are i.i.d.", NORMS, "|f(X, theta*)| = O(1)"):
        assert checks[name].met is None  # no data was given
    assert {check.theorem for check in record.checks} == {"Theorem 4.1", "Theorem 6.2", "Theorem 6.3"}
    trained = _by_name(ws.assumptions("rf", n=40, d=8, samples=9, prediction=-1.5, gamma=0.5), "Theorem 6.2")
    assert (trained["|f(X, theta*)| = O(1)"].value, trained["|f(X, theta*)| = O(1)"].met) == (1.5, False)
    assert trained["gamma < 2 (Assumption 6.1)"].met


def test_the_mean_and_the_concentration_of_samples() -> None:
    drawn = _by_name(ws.assumptions("rf", _samples()), "Theorem 6.3")
    assert drawn[MEAN].met
    assert drawn[CONCENTRATION].met
    shift = torch.zeros(5, 16)
    shift[:, 0] = 2.0
    shifted = _by_name(ws.assumptions("rf", ws.normalize(_samples() + shift)), "Theorem 6.3")
    assert shifted[MEAN].met is False
    assert shifted[CONCENTRATION].met  # a shift moves the mean only
    assert drawn[NORMS].met
    signs = torch.where(torch.arange(200) % 3 == 0, 1.0, -1.0)[:, None, None]
    mixed = _by_name(ws.assumptions("rf", ws.normalize(_samples() + signs * shift)), "Theorem 6.3")
    assert mixed[CONCENTRATION].met is False


def test_estimates_of_the_law_against_plain_code() -> None:
    X = ws.normalize(_samples(30) + 1.0)
    checks = _by_name(ws.assumptions("rf", X), "Theorem 6.3")
    flat = X.reshape(30, -1).numpy()
    pairs = np.array([a @ b / 80 for i, a in enumerate(flat) for j, b in enumerate(flat) if i != j])
    assert checks[MEAN].value == pytest.approx(pairs.mean())
    assert checks[MEAN].limit == pytest.approx(3 * math.sqrt(2 * (pairs**2).mean() / (30 * 29)))
    first, second = flat[::2], flat[1::2]
    direction = np.linalg.svd(first - first.mean(0))[2][0]
    assert checks[CONCENTRATION].value == pytest.approx((second @ direction).var(ddof=1))
    assert checks[CONCENTRATION].limit == pytest.approx(1 + 3 * math.sqrt(2 / 14))


def test_the_estimate_of_the_mean_has_no_bias() -> None:
    shift = torch.zeros(2, 4)
    shift[0, 0] = 1.0
    truth = float(ws.normalize(_samples(20000, 2, 4) + shift).mean(0).square().sum()) / 8
    draws = ws.normalize(_samples(20000, 2, 4) + shift).reshape(2000, 10, 2, 4)
    estimates = [_by_name(ws.assumptions("rf", X), "Theorem 6.3")[MEAN].value or 0.0 for X in draws[:500]]
    error = np.std(estimates) / math.sqrt(500)
    assert abs(np.mean(estimates) - truth) < 4 * error
    assert error < 0.2 * truth  # else the line above says nothing


@pytest.mark.parametrize(
    ("theorem", "phi", "assumption", "met"),
    [
        ("slides, RF", "tanh", "E phi' is not 0", True),
        ("slides, RF", "cos", "E phi' is not 0", False),
        ("slides, NTK", "cos", "phi is even", True),
        ("slides, NTK", "tanh", "phi is even", False),
        ("Theorem 4.1", "square", "phi is Lipschitz", False),
        ("Theorem 4.1", "tanh", "phi is Lipschitz", True),
        ("Theorem 6.3", "identity", "phi is not linear", False),
        ("Theorem 6.3", "relu", "phi is not linear", True),
    ],
)
def test_assumptions_on_the_activation(theorem: str, phi: str, assumption: str, met: bool) -> None:
    record = ws.assumptions("rf", n=1, d=10, k=30, samples=20, activation=phi, theorems=[theorem])
    assert _by_name(record, theorem)[assumption].met is met


def test_sizes_of_the_theorems_on_robustness() -> None:
    rf = _by_name(ws.assumptions("rf", n=1, d=10, k=30, samples=64, theorems=["slides, RF"]), "slides, RF")
    assert [(rf[name].value, rf[name].limit) for name in ("p >> N", "p >> d")] == [(64, 30), (10, 30)]
    assert rf["d >> N^(2/3)"].value == pytest.approx(16)
    assert rf["d >> N^(2/3)"].limit == 10
    ntk = _by_name(ws.assumptions("ntk", d=10, k=30, samples=20), "slides, NTK")
    compared = [(ntk[name].value, ntk[name].limit) for name in ("p >> N", "k = O(d)", "N = O(k)")]
    assert compared == [(20, 300), (30, 10), (20, 30)]


def test_several_words() -> None:
    checks = _by_name(ws.assumptions("rf", n=20, d=4, words=5), "Remark 4.2")
    assert (checks["m = o(n)"].value, checks["m = o(n)"].limit) == (5, 20)


def test_over_several_settings() -> None:
    rows = summarise([ws.assumptions("raf", n=n, d=d) for n, d in ((1, 8192), (250, 768))])
    by_name = {row["assumption"]: row for row in rows}
    assert by_name[SHORT]["met"] is False
    expected = "n = 1 to 250 against d / log^4 d = 0.394 to 1.24; met in 1 of 2 settings"
    assert by_name[SHORT]["measured"] == expected
    assert (by_name[NORMS]["met"], by_name[NORMS]["measured"]) == (None, "largest error of |x_j| / sqrt(d): not known")
    (single,) = (row for row in summarise([ws.assumptions("rf", n=2, d=3)]) if row["assumption"] == WIDE)
    assert (single["met"], single["measured"]) == (True, "D = n d = 6 against k = 6")


def test_the_record() -> None:
    record = ws.assumptions("rf", _samples(20))
    check_record(record, {"map", "n", "d", "assumptions"}, 80.0)
    assert record.met + record.not_met + record.unknown == len(record.checks) == len(record.rows())
    check_record(ws.assumptions("rf", _samples(20), activation="square"), {"assumptions"}, 80.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ws.assumptions("rff", n=2, d=3), "phi must be one of"),
        (lambda: ws.assumptions("rf", n=2), "d must be known"),
        (lambda: ws.assumptions("rf", ws.gaussian_context(2, 3), n=4), "n must be the same everywhere, got 2 and 4"),
        (lambda: ws.assumptions(torch.nn.Linear(2, 2), n=2, d=2), "got Linear"),  # type: ignore[arg-type]
        (lambda: ws.assumptions("rf", torch.ones(3)), r"got shape \(3,\)"),
        (lambda: ws.assumptions("rf", n=2, d=3, theorems=["Theorem 9.9"]), "theorems must be one of"),
        (lambda: ws.assumptions(ws.RandomFeatures(2, 3), n=2, d=3, activation="tanh"), "that of the map, relu"),
        (lambda: ws.assumptions("rf", n=2, d=3, samples=0), "samples"),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(ws.InputError, match=message):
        call()  # type: ignore[operator]


def test_every_theorem_can_be_chosen() -> None:
    record = ws.assumptions("rf", n=2, d=3, samples=5, theorems=list(THEOREMS))
    assert list(dict.fromkeys(check.theorem for check in record.checks)) == list(THEOREMS)
