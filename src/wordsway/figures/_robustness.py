"""What the figures of robust features share: one trial for all widths, samples and activations, claims, pictures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.activations import ACTIVATIONS
from wordsway.experiments.claims import TOO_FEW, curves, deviation, each, exponent_near, power_law
from wordsway.experiments.experiment import Estimate, Parameters, RunConfig, Table, TrialResult, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FALLS, _STAYS = 0.15, 0.25  # how far an exponent may be from -1/2, and how far below 0


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """S of one new input for every width, number of samples and activation, from one draw of data and weights."""
    from wordsway.kernels import robustness_sweep
    from wordsway.models import input_samples

    samples, widths = numbers(parameters["samples"]), numbers(parameters["widths"])
    d = parameters["d"] if parameters["data"] == "gaussian" else None
    inputs, labels = input_samples(parameters["data"], samples[-1] + 1, d, seed)
    names = parameters["activations"].split()
    found = robustness_sweep(parameters["kind"], inputs[:-1], labels[:-1], inputs[-1], widths, samples, names, seed)
    return {f"{one.activation} {one.samples} {one.width}": one.sensitivity for one in found}


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split()]


Sizes = dict[str, dict[str, tuple[int, str, str]]]  # of a scale and its data: dimension, samples, widths


def grid(kind: str, names: str, sizes: Sizes) -> Callable[[RunConfig], Iterable[Parameters]]:
    """One point for each kind of data, whose trials sweep all sizes of a scale."""

    def points(config: RunConfig) -> Iterable[Parameters]:
        for data, (d, samples, widths) in sizes[config.scale].items():
            yield {"kind": kind, "data": data, "d": d, "samples": samples, "widths": widths, "activations": names}

    return points


def table(finished: Sequence[TrialResult]) -> Table:
    """One row for each kind of data, activation, number of samples and width."""
    rows: Table = []
    for (data,), members in curves([{**one.parameters, "record": one.record} for one in finished], "data").items():
        for name in members[0]["record"]:
            found = [one["record"][name] for one in members]
            activation, samples, width = name.split()
            rows.append(
                {
                    "data": data,
                    "activation": activation,
                    "samples": int(samples),
                    "width": int(width),
                    "trials": len(found),
                    "mean": statistics.fmean(found),
                    "deviation": deviation(found),
                }
            )
    return rows


def judged(table: Table, judge: Callable[[str, Table], list[Verdict]]) -> list[Verdict]:
    """The laws for each activation on Gaussian inputs, which they are about, and what becomes of them on images."""
    drawn = [row for row in table if row["data"] == "gaussian"]
    return [*each(drawn, "activation", judge), _images([row for row in table if row["data"] != "gaussian"])]


def _images(rows: Table) -> Verdict:
    """That no activation becomes robust on images: those of two classes can be so close that no model can."""
    claim = f"digits: S does not fall like k^(-1/2) for any activation, exponents above -{_STAYS:g}"
    lines = curves(rows, "activation").values()
    found = [one.exponent for line in lines if (one := power_law(line, "width", "mean", "samples")) is not None]
    if not found:
        return Verdict(claim, TOO_FEW, None)
    return Verdict(claim, f"{min(found):.3f} to {max(found):.3f}", min(found) > -_STAYS)


def falls(name: str, rows: Table) -> Verdict:
    """That S falls like k^(-1/2)."""
    return exponent_near(f"{name}: S falls like k^(-1/2)", rows, -0.5, _FALLS, curve=("samples",), x="width")


def stays(name: str, rows: Table) -> Verdict:
    """That S does not fall like that, however many parameters there are."""
    said = f"{name}: S does not fall like k^(-1/2), exponent above -{_STAYS:g}"
    found = power_law(rows, "width", "mean", "samples")
    if found is None:
        return Verdict(said, TOO_FEW, None)
    measured = f"{found.exponent:.3f} (standard error {found.error:.3f})"
    return Verdict(said, measured, found.exponent > -_STAYS)


def draw(rows: Table, figure: Figure) -> None:
    """A panel for each kind of data and activation, a curve for each number of samples."""
    from wordsway.figures import _style as style

    panels = list(curves(rows, "data", "activation").items())
    for place, ((data, name), members) in enumerate(panels):
        even = " (even)" if ACTIVATIONS[name].parity == "even" else ""
        axes = style.panel(figure, len(panels), place, f"{name}{even}, {data}")
        for number, ((samples,), line) in enumerate(curves(members, "samples").items()):
            ordered = sorted(line, key=lambda row: float(row["width"]))
            x, mean, spread = ([row[key] for row in ordered] for key in ("width", "mean", "deviation"))
            style.curve(axes, x, mean, spread, [None] * len(x), label=f"N = {samples}", number=number)
        widths = sorted({row["width"] for row in members})
        middle = statistics.fmean(row["mean"] * row["width"] ** 0.5 for row in members)
        style.theory(axes, widths, [middle / width**0.5 for width in widths], "∝ $k^{-1/2}$")
        style.finish(axes, "width k", "$S$" if place % 3 == 0 else "", widths, logarithmic=True)


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one trial: features once, a kernel for each activation."""
    count, width = numbers(parameters["samples"])[-1], numbers(parameters["widths"])[-1]
    names = len(parameters["activations"].split())
    work = 2.0 * count * width * (parameters["d"] + names * count)
    return Estimate(0.3 + work / 2e10, 5 * 10**8 + 10 * count * width + 100 * count**2)
