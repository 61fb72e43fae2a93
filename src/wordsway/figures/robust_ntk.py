"""NTK features of even activations become robust with their number; those of others do not."""

from dataclasses import replace
from functools import partial

from wordsway.activations import ACTIVATIONS
from wordsway.experiments import Table, Verdict
from wordsway.experiments.claims import each, judge
from wordsway.figures import _robustness as shared

_MORE_ROBUST = '"Even activations more robust than odd ones" (slides)'
NAMES = "square cos tanh softplus gelu"
SIZES: shared.Sizes = {
    "quick": {"gaussian": (200, "80 160 240", "10 20 40 60"), "mnist": (784, "80 160 240", "15 30 60 150")},
    "paper": {
        "gaussian": (1000, "400 800 1200", "15 30 60 100 150 300"),
        "mnist": (784, "400 800", "15 30 60 100 150 300"),
        "mnist-full": (784, "400 800 1200", "15 30 60 100 150 300"),
        "cifar10": (3072, "400 800 1200", "15 30 60 100 150 300"),
    },
}


def claims(table: Table) -> list[Verdict]:
    def laws(name: str, title: str, rows: Table) -> list[Verdict]:
        even = ACTIVATIONS[name].parity == "even"
        return [shared.falls(title, rows) if even else shared.stays(title, rows)]

    return [*shared.claims(table, laws), *each(table, "data", lambda data, rows: [_even_below_odd(data, rows)])]


def _even_below_odd(data: str, rows: Table) -> Verdict:
    """Judge that even activations are more robust than odd ones with the most samples and neurons."""
    most = [row for row in rows if all(row[name] == max(one[name] for one in rows) for name in ("samples", "width"))]
    even = [row["mean"] for row in most if ACTIVATIONS[row["activation"]].parity == "even"]
    odd = [row["mean"] for row in most if ACTIVATIONS[row["activation"]].parity == "odd"]
    claim = f"{data}: S of even activations is below that of odd ones with the most samples and neurons"

    def measured() -> tuple[str, bool]:
        return f"{max(even):.3g} at most against {min(odd):.3g} at least", max(even) < min(odd)

    return replace(judge(claim, even and odd, measured), source=_MORE_ROBUST)


FIGURE = shared.experiment(
    name="robust-ntk",
    title="NTK features are robust for even activations",
    about="S = |x| |grad f(x)| of the interpolator on the p = k d NTK features x (x) phi'(W x) of N inputs, against k: "
    "for even phi it falls like sqrt(N d / p), the best that any model can do. Bands are one standard deviation; the "
    "dashed line is k^(-1/2). MNIST and CIFAR-10: classes 0 and 1, pixels from 0 to 1, as published; the "
    "theorem is about other inputs, and the same laws are judged.",
    grid=shared.grid("ntk", NAMES, SIZES),
    claims=claims,
    assumptions=partial(shared.assumed, applies=lambda name: ACTIVATIONS[name].parity == "even"),
)
