"""Shared by the figures of robust features: one trial sweeps all widths, samples and activations; claims and plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from wordsway.activations import ACTIVATIONS
from wordsway.data.offline import is_downloaded
from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import curves, exponent, exponent_near, power_law, statistics
from wordsway.figures import _style as style
from wordsway.kernels import robustness_sweep
from wordsway.models import input_samples
from wordsway.sensitivity import Assumptions, assumptions

_FALLS, _STAYS = 0.15, 0.25  # how far an exponent may be from -1/2, and how far below 0
_ACROSS = 3  # panels in a row: more are not legible on a page
_DOWNLOADED = ("mnist-full", "cifar10")
Sizes = dict[str, dict[str, tuple[int, str, str]]]  # of a scale and its data: dimension, samples, widths


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure S of one new input at every width, number of samples and activation, for one draw of data and weights.

    Inputs and labels are those of the published runs. The terms of the proof are about Gaussian inputs alone.
    """
    samples, widths = numbers(parameters["samples"]), numbers(parameters["widths"])
    d = parameters["d"] if parameters["data"] == "gaussian" else None
    inputs, labels = input_samples(parameters["data"], samples[-1] + 1, d, seed, published=True)
    names, kind = parameters["activations"].split(), parameters["kind"]
    terms = terms_width(parameters["d"], widths) if kind == "rf" and d is not None else None
    return robustness_sweep(kind, inputs[:-1], labels[:-1], inputs[-1], widths, samples, names, seed, terms)


def terms_width(d: int, widths: Sequence[int]) -> int:
    """Return the width at which the terms of the proof are computed: their cost grows with it, their error is of order
    d / k, so the smallest one for which that is below 1/40, or the largest of all."""
    return min((width for width in widths if width >= 40 * d), default=max(widths))


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split()]


def grid(kind: str, names: str, sizes: Sizes) -> Callable[[RunConfig], Iterable[Parameters]]:
    """Return a grid with one point for each kind of data, whose trials sweep all sizes of a scale.

    Images that are downloaded on request are left out where they are not here; the full MNIST replaces the installed
    part of it.
    """

    def points(config: RunConfig) -> Iterable[Parameters]:
        absent = {name for name in _DOWNLOADED if not is_downloaded(name)}
        if {"mnist", "mnist-full"} <= sizes[config.scale].keys() - absent:
            absent.add("mnist")
        for data, (d, samples, widths) in sizes[config.scale].items():
            if data in absent:
                continue
            yield {"kind": kind, "data": data, "d": d, "samples": samples, "widths": widths, "activations": names}

    return points


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per kind of data, activation, number of samples and width.

    For random features on Gaussian inputs, at one of the widths, with two terms of the proof: the mean of the norm of
    the centred interaction matrix over what it is in the limit, and the least S over its lower bound.
    """
    names = ("data", "activation", "samples", "width")
    sweeps = [
        {"kind": result["kind"], "data": result["data"], **point} for result in results for point in result["points"]
    ]
    rows: Table = []
    for values, trials in curves(sweeps, *names).items():
        row = dict(zip(names, values, strict=True))
        row |= statistics([trial["sensitivity"] for trial in trials], "mean", "deviation")
        if trials[0]["kind"] == "rf":
            known = [trial for trial in trials if "lower_bound" in trial]
            norms = [(trial["interaction_centred"], trial["interaction_law"]) for trial in known]
            ratios = [norm / limit for norm, limit in norms if limit > 1e-9 * norm]  # the limit is 0 where E phi' is
            row["interaction_ratio"] = fmean(ratios) if ratios else None
            row["over_lower"] = min((trial["sensitivity"] / trial["lower_bound"] for trial in known), default=None)
        rows.append(row)
    return rows


def assumed(results: Sequence[TrialResult], applies: Callable[[str], bool]) -> list[Assumptions]:
    """Return the assumptions of the slides' theorem at each size, for Gaussian inputs and activations it is about."""
    drawn = [one for one in results if one["data"] == "gaussian"]
    sizes = {
        (one["kind"], point["activation"], one["d"], point["width"], point["samples"]): None
        for one in drawn
        for point in one["points"]
        if applies(point["activation"])
    }
    theorems = {"rf": ["slides, RF"], "ntk": ["slides, NTK"]}
    return [
        assumptions(kind, n=1, d=d, k=k, samples=count, activation=name, theorems=theorems[kind])
        for kind, name, d, k, count in sizes
    ]


def claims(table: Table, judge_one: Callable[[str, str, Table], list[Verdict]]) -> list[Verdict]:
    """Judge the laws for each kind of data and activation; they are theorems about Gaussian inputs, not about images.

    `judge_one` takes the activation, a name for the claims, and the rows.
    """
    verdicts = []
    for (data, name), rows in curves(table, "data", "activation").items():
        verdicts += judge_one(name, name if data == "gaussian" else f"{name}, {data}", [dict(row) for row in rows])
    return verdicts


def falls(name: str, rows: Table) -> Verdict:
    """Judge that S falls like k^(-1/2); it is weaker than that where S falls more slowly."""
    verdict = exponent_near(f"{name}: S falls like k^(-1/2)", rows, -0.5, _FALLS, curve=("samples",), x="width")
    law = power_law(rows, "width", "mean", "samples")
    slowly = law is not None and -0.5 + _FALLS < law.exponent <= -_STAYS
    return replace(verdict, weaker="it falls more slowly") if slowly else verdict


def stays(name: str, rows: Table) -> Verdict:
    """Judge that S does not fall like that, however many parameters there are."""
    claim = f"{name}: S does not fall like k^(-1/2), exponent above -{_STAYS:g}"
    return exponent(claim, rows, lambda fitted: fitted > -_STAYS, curve=("samples",), x="width")


def plot(rows: Table, figure: style.Figure) -> None:
    """Draw rows for each kind of data, on one scale, with a panel for each activation and a curve for each N."""

    def title(data: str, name: str) -> str:
        return f"{name}{' (even)' if ACTIVATIONS[name].parity == 'even' else ''}, {data}"

    groups = curves(rows, "data")
    down = -(-max((len(curves(some, "activation")) for some in groups.values()), default=0) // _ACROSS)
    for number, ((data,), some) in enumerate(groups.items()):
        compared = []
        for place, ((name,), members) in enumerate(curves(some, "activation").items(), number * down * _ACROSS):
            axes = style.panel(figure, len(groups) * down * _ACROSS, place, title(data, name), _ACROSS)
            compared.append(axes)
            style.lines(axes, members, "samples", "N = {}", x="width")
            style.law(axes, members, lambda width: width**-0.5, "∝ $k^{-1/2}$", x="width")
            style.finish(
                axes, "width k", "sensitivity $S$", sorted({row["width"] for row in members}), logarithmic=True
            )
        style.common_scale(compared)


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: features once, and for each activation a kernel, its solutions and for rf the terms.

    Constants are a fit to CPU seconds of trials of rf at widths of 40,000 and 200,000, which compute in float32, and of
    ntk at the paper scale.
    """
    samples, widths = numbers(parameters["samples"]), numbers(parameters["widths"])
    count, width = samples[-1], widths[-1]
    names = len(parameters["activations"].split())
    d, widest = parameters["d"], terms_width(parameters["d"], widths)
    terms = names * d * widest if parameters["kind"] == "rf" and parameters["data"] == "gaussian" else 0
    speed = 5.3e10 if parameters["kind"] == "rf" else 2e10
    solutions = 1.1e-11 * names * len(widths) * sum(some**3 for some in samples)
    seconds = 0.3 + solutions + 2.0 * count * (width * (d + names * count) / speed + terms / 3.7e10)
    return Estimate(seconds, 5 * 10**8 + 12 * count * width + 100 * count**2)


experiment = partial(
    Experiment,
    trial=trial,
    trials={"quick": 5, "paper": 10},
    table=table,
    plot=plot,
    estimate=estimate,
    version=5,
)
