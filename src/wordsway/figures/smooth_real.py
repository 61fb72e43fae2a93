"""How smooth attention is on real text: local Lipschitz constants against the length of the context."""

from functools import partial

from wordsway.experiments import Parameters, Table, TrialRecord, Verdict
from wordsway.experiments.claims import each
from wordsway.figures import _smoothness as shared
from wordsway.smoothness import local_lipschitz

_SOURCE = '"The local Lipschitz constant with real data grows like Cn^(1/4)" (poster)'
LENGTHS = {"quick": (4, 16, 64, 128), "paper": (2, 4, 8, 16, 32, 64, 128, 240)}


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the constant of a layer at its input on the first n tokens of a review."""
    model, attention = shared.layer_of(parameters)
    tokens = model.review_tokens(1, parameters["n"], seed)
    context = model.layer_inputs(tokens, parameters["layer"])[0].double()
    return local_lipschitz(attention, context, seed=seed)


def claims(table: Table) -> list[Verdict]:
    """Judge that trained layers grow like n^(1/4), and random ones, which the poster does not measure, no faster."""

    def judge(name: str, rows: Table) -> list[Verdict]:
        if name == "gpt2-random":
            return shared.layers_grow_slowly(name, rows, 0.25, "n^(1/4)")
        return shared.layers_grow(name, rows, 0.25, "n^(1/4)", (0.0, 0.5), _SOURCE)

    return [*each(table, "panel", judge), shared.converged(table)]


FIGURE = shared.experiment(
    name="smooth-real",
    title="How attention grows steeper on real text",
    about="Local Lipschitz constants of attention layers at their own inputs on film reviews, against the length of "
    "the text: an encoder, the same with a causal mask, a GPT-2 with random weights and a small language model. Bands "
    "are one standard deviation over reviews; the dashed line is n^(1/4), which the poster measures.",
    trial=trial,
    grid=shared.grid_over(LENGTHS),
    trials={"quick": 3, "paper": 10},
    claims=claims,
    plot=partial(shared.plot, power=0.25, label="∝ $n^{1/4}$"),
)
