"""NTK features of even activations become robust with their number; those of others do not."""

from functools import partial

from wordsway.activations import ACTIVATIONS
from wordsway.experiments import Table, Verdict
from wordsway.figures import _robustness as shared

NAMES = "square cos tanh softplus gelu"
SIZES: shared.Sizes = {
    "quick": {"gaussian": (200, "80 160 240", "10 20 40 60"), "digits": (64, "80 160 240", "20 40 80 160")},
    "paper": {
        "gaussian": (1000, "400 800 1200", "15 30 60 100 150 300"),
        "digits": (64, "400 800 1200", "60 100 150 300 600"),
    },
}


def claims(table: Table) -> list[Verdict]:
    def judge(name: str, rows: Table) -> list[Verdict]:
        even = ACTIVATIONS[name].parity == "even"
        return [shared.falls(name, rows) if even else shared.stays(name, rows)]

    return shared.claims(table, judge)


FIGURE = shared.experiment(
    name="robust-ntk",
    title="NTK features are robust for even activations",
    about="S = |x| |grad f(x)| of the interpolator on the p = k d NTK features x (x) phi'(W x) of N inputs, against k: "
    "for even phi it falls like sqrt(N d / p), the best that any model can do. Bands are one standard deviation; the "
    "dashed line is k^(-1/2). Images of digits are drawn and not judged: the laws are about Gaussian inputs.",
    grid=shared.grid("ntk", NAMES, SIZES),
    claims=claims,
    assumptions=partial(shared.assumed, applies=lambda name: ACTIVATIONS[name].parity == "even"),
)
