"""Random features are not robust, however many there are, unless E phi' = 0."""

from functools import partial

from wordsway.activations import ACTIVATIONS
from wordsway.experiments import Table, Verdict
from wordsway.experiments.claims import at_least_one, check, exponent, judge
from wordsway.figures import _robustness as shared

_NEAR = 0.05  # how far the mean norm of an interaction matrix may be from its limit; both have errors of order d / k
NAMES = "square cos tanh softplus gelu relu"
SIZES: shared.Sizes = {
    "quick": {
        "gaussian": (200, "80 160 240", "1000 2000 4000 8000"),
        "mnist": (784, "80 160 240", "1000 2000 4000 8000"),
    },
    "paper": {
        "gaussian": (1000, "400 800 1200", "10000 20000 50000 100000 200000"),
        "mnist": (784, "400 800", "10000 20000 50000 100000 200000"),
        "mnist-full": (784, "400 800 1200", "10000 20000 50000 100000 200000"),
        "cifar10": (3072, "400 800 1200", "10000 20000 50000 100000 200000"),
    },
}


def claims(table: Table) -> list[Verdict]:
    def judge(name: str, title: str, rows: Table) -> list[Verdict]:
        if abs(ACTIVATIONS[name].mean_derivative) < 1e-9:
            return [shared.falls(title, rows)]
        own = [shared.stays(title, rows), grows(title, rows)]
        if rows[0]["data"] != "gaussian":
            return own
        above = at_least_one(
            f"{name}: S is above the lower bound of the proof", rows, "over_lower", "{:.2f} times at least"
        )
        return [*own, interaction(name, rows), check(above)]

    return shared.claims(table, judge)


def grows(name: str, rows: Table) -> Verdict:
    """Judge that S at the largest width grows with the number of samples, at least like N^(1/6)."""
    most = max(row["width"] for row in rows)
    widest = [row for row in rows if row["width"] == most]
    return exponent(
        f"{name}: S grows with N, exponent at least 1/6", widest, lambda fitted: fitted >= 1 / 6, x="samples"
    )


def interaction(name: str, rows: Table) -> Verdict:
    """Judge that the norm of the centred interaction matrix is the one of the proof."""
    claim = f"{name}: |I|_F of centred features is k sqrt(N/d) (E phi')^2 within {_NEAR:.0%}"
    ratios = [row["interaction_ratio"] for row in rows if row["interaction_ratio"] is not None]
    measured = [f"{ratio:.3f}" for ratio in (min(ratios, default=0.0), max(ratios, default=0.0))]
    near = all(abs(ratio - 1) <= _NEAR for ratio in ratios)
    return judge(claim, ratios, lambda: (f"{' to '.join(measured)} times that", near))


FIGURE = shared.experiment(
    name="robust-rf",
    title="Random features are never robust, unless E phi' = 0",
    about="S = |x| |grad f(x)| of the interpolator on k random features phi(V x) of N inputs, against k: it does "
    "not fall where E phi' is not 0, however many features there are, and grows with N, above the "
    "bound by the interaction matrix and the largest eigenvalue of the centred kernel. Bands are one standard "
    "deviation; the dashed line is k^(-1/2). MNIST and CIFAR-10: classes 0 and 1, pixels from 0 to 1, as published; "
    "the theorem is about other inputs, and the same laws are judged.",
    grid=shared.grid("rf", NAMES, SIZES),
    claims=claims,
    assumptions=partial(shared.assumed, applies=lambda name: abs(ACTIVATIONS[name].mean_derivative) > 1e-9),
)
