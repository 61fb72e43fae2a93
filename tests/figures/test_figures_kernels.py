"""The figures of tangent kernels and robust features: trials, tables, and claims that fail where a law is broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from experiments.made import record_of

from wordsway import feature_robustness, gaussian_context
from wordsway.data import image_samples
from wordsway.experiments.experiment import Experiment, RunConfig, TrialResult
from wordsway.figures import _robustness as shared
from wordsway.figures import all_figures, ntk_flow, ntk_lambda, ntk_loss, robust_ntk, robust_rf
from wordsway.figures._style import render
from wordsway.seeds import generator, signs

NAMES = ("ntk-flow", "ntk-lambda", "ntk-loss", "robust-ntk", "robust-rf")
FLOW, LAMBDA, LOSS, ROBUST_NTK, ROBUST_RF = (all_figures()[name] for name in NAMES)
Law = Callable[[str, int, int], float]


def swept(figure: Experiment, law: Law, scale: str = "quick") -> list[TrialResult]:
    """Finished sweeps whose sensitivities obey a law of activation, samples and width; on images, those of tanh do."""
    found = []
    for point in figure.grid(RunConfig(scale)):
        record = {
            f"{name} {count} {width}": law(name if point["data"] == "gaussian" else "tanh", count, width)
            for name in point["activations"].split()
            for count in shared.numbers(point["samples"])
            for width in shared.numbers(point["widths"])
        }
        found += [TrialResult(figure.name, dict(point), seed, dict(record)) for seed in (0, 1)]
    return found


def theory(name: str, count: int, width: int) -> float:
    return math.sqrt(count) * (30 / math.sqrt(width) if name in ("square", "cos") else 1.0)


@pytest.mark.parametrize("figure", [ROBUST_RF, ROBUST_NTK], ids=lambda figure: figure.name)
@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_robustness_claims_hold_in_theory(figure: Experiment, scale: str) -> None:
    verdicts = figure.claims(figure.table(swept(figure, theory, scale)))
    assert [verdict.claim for verdict in verdicts if not verdict.holds] == []
    assert len(verdicts) == (11 if figure is ROBUST_RF else 6)


@pytest.mark.parametrize(
    ("figure", "law", "broken"),
    [
        (ROBUST_RF, lambda name, count, width: math.sqrt(count), ["square", "cos"]),
        (ROBUST_NTK, lambda name, count, width: 1 / math.sqrt(width), ["tanh", "softplus", "gelu", "digits"]),
        (ROBUST_RF, lambda name, count, width: theory(name, 100, width), ["tanh", "softplus", "gelu", "relu"]),
    ],
)
def test_robustness_claims_fail_where_a_law_is_broken(figure: Experiment, law: Law, broken: list[str]) -> None:
    failed = {v.claim.split(":")[0] for v in figure.claims(figure.table(swept(figure, law))) if v.holds is False}
    assert failed == set(broken)


def test_a_sweep_is_what_single_measurements_give() -> None:
    point = {"kind": "rf", "data": "gaussian", "d": 8, "samples": "5 9", "widths": "30 60", "activations": "tanh cos"}
    record = shared.trial(point, 4)
    assert len(record) == 8
    inputs = gaussian_context(10, 8, 4)
    labels = signs(generator(4, "labels"), 9)
    alone = feature_robustness("rf", inputs[:5], labels[:5], inputs[-1], 60, "cos", seed=4)
    assert record["cos 5 60"] == pytest.approx(alone.value, rel=1e-8)


def test_a_sweep_of_images() -> None:
    point = {"kind": "ntk", "data": "digits", "d": 64, "samples": "9", "widths": "5", "activations": "tanh"}
    X, y = image_samples("digits", 10, 1)
    alone = feature_robustness("ntk", X[:9], y[:9], X[9], 5, "tanh", seed=1)
    assert shared.trial(point, 1) == {"tanh 9 5": pytest.approx(alone.value, rel=1e-8)}


def test_the_sizes_of_the_paper() -> None:
    (rf, _), (ntk, _) = (list(figure.grid(RunConfig("paper"))) for figure in (ROBUST_RF, ROBUST_NTK))
    assert (rf["d"], rf["samples"], shared.numbers(rf["widths"])[-1]) == (1000, "400 800 1200", 200_000)
    assert (ntk["d"], shared.numbers(ntk["widths"])[0], shared.numbers(ntk["widths"])[-1]) == (1000, 15, 300)
    assert set(robust_rf.NAMES.split()) >= {"square", "tanh", "cos", "softplus"}
    assert set(robust_ntk.NAMES.split()) >= {"square", "tanh", "cos", "softplus"}
    assert ntk_lambda.SAMPLES["paper"]["gaussian"] == (1000, 2000, 3000)
    assert max(ntk_lambda.WIDTHS["paper"]) == 1000


# Eigenvalues


def eigenvalues(**changes: Any) -> list[TrialResult]:
    found = []
    for point in LAMBDA.grid(RunConfig()):
        few = point["width"] ** 2 < point["samples"]
        share = 0.0 if few else 1 - point["samples"] / point["width"] ** 2
        record = {"lambda_min": share, "share": share, "status": "singular" if few else "regular", **changes}
        found.append(TrialResult("ntk-lambda", dict(point), 0, record))
    return found


def test_eigenvalue_claims() -> None:
    assert [verdict.holds for verdict in LAMBDA.claims(LAMBDA.table(eigenvalues()))] == [True, True, True]
    assert [v.holds for v in LAMBDA.claims(LAMBDA.table(eigenvalues(status="regular")))] == [False, True, True]
    assert [v.holds for v in LAMBDA.claims(LAMBDA.table(eigenvalues(status="singular")))] == [True, False, True]
    assert [v.holds for v in LAMBDA.claims(LAMBDA.table(eigenvalues(share=0.5)))] == [True, True, False]


def test_an_eigenvalue_trial() -> None:
    few = record_of(LAMBDA, {"data": "gaussian", "samples": 30, "width": 5}, 0)
    many = record_of(LAMBDA, {"data": "digits", "samples": 30, "width": 30}, 0)
    assert (few["status"], many["status"]) == ("singular", "regular")
    assert 0 <= few["share"] < 1e-10 < many["share"] < 1


# Flow and loss


def test_a_flow_trial_stays_below_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ntk_flow, "SAMPLES", 5)
    record = record_of(FLOW, {"width": 20}, 1)
    assert [record[f"{name} 0"] for name in ("actual", "linear", "bound")] == pytest.approx([1, 1, 1])
    assert record["bound 2"] == pytest.approx(math.exp(-1))
    assert record["linear 1"] < record["bound 1"]
    assert record["actual 1"] < 1


def test_flow_claims_can_fail() -> None:
    record = {f"{name} {time:g}": 1.0 - 0.1 * time for name in ("actual", "linear", "bound") for time in ntk_flow.TIMES}
    good = [TrialResult("ntk-flow", {"width": 30}, 0, record)]
    assert [verdict.holds for verdict in FLOW.claims(FLOW.table(good))] == [True, True]
    bad = [TrialResult("ntk-flow", {"width": 30}, 0, {**record, "actual 1": 0.95})]
    assert [verdict.holds for verdict in FLOW.claims(FLOW.table(bad))] == [False, True]


def losses(law: Callable[[float], float]) -> list[TrialResult]:
    found = []
    for point in LOSS.grid(RunConfig()):
        parameters = 3 * point["width"] ** 2 + point["width"]
        record = {"loss": law(parameters / point["samples"]), "parameters": parameters}
        found.append(TrialResult("ntk-loss", dict(point), 0, record))
    return found


def test_loss_claims_can_fail() -> None:
    right = LOSS.claims(LOSS.table(losses(lambda ratio: 1e-6 if ratio > 1 else 0.5)))
    assert [verdict.holds for verdict in right] == [True, True]
    never = LOSS.claims(LOSS.table(losses(lambda ratio: 0.5)))
    assert [verdict.holds for verdict in never] == [False, True]
    always = LOSS.claims(LOSS.table(losses(lambda ratio: 0.0)))
    assert [verdict.holds for verdict in always] == [True, False]


def test_a_loss_trial() -> None:
    record = record_of(LOSS, {"samples": 10, "width": 6, "steps": 1500}, 0)
    assert record["parameters"] == 3 * 36 + 6
    assert record["loss"] < ntk_loss._FITTED
    assert record_of(LOSS, {"samples": 40, "width": 2, "steps": 200}, 0)["loss"] > 0.1


# All of them


def test_nothing_is_claimed_of_no_trials() -> None:
    for name in NAMES:
        figure = all_figures()[name]
        assert figure.table([]) == []
        assert all(verdict.holds is None for verdict in figure.claims([]))


def test_pictures_and_estimates() -> None:
    flow = {f"{kind} {time:g}": math.exp(-time) for kind in ("actual", "linear", "bound") for time in ntk_flow.TIMES}
    tables = {
        "ntk-flow": FLOW.table([TrialResult("ntk-flow", {"width": width}, 0, flow) for width in (30, 90)]),
        "ntk-lambda": LAMBDA.table(eigenvalues()),
        "ntk-loss": LOSS.table(losses(lambda ratio: 1e-6 if ratio > 1 else 0.5)),
        "robust-ntk": ROBUST_NTK.table(swept(ROBUST_NTK, theory)),
        "robust-rf": ROBUST_RF.table(swept(ROBUST_RF, theory)),
    }
    for name, rows in tables.items():
        figure = all_figures()[name]
        assert len(render(lambda canvas, figure=figure, rows=rows: figure.plot(rows, canvas), "svg")) > 10_000  # type: ignore[misc]
        assert figure.estimate is not None
        for point in figure.grid(RunConfig("paper")):
            assert 0 < figure.estimate(point).seconds < 1200
