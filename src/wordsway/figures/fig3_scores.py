"""Figure 3, fourth plot: the attention of the first head moves to the word that attracts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from wordsway.experiments import Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import TOO_FEW, Points, curves
from wordsway.figures import _models as shared
from wordsway.figures import _style as style
from wordsway.models import load

TITLE = "Towards Understanding the Word Sensitivity of Attention Layers: A Study via Random Features"
TOKEN = 6
HEAD = 0
WHEN = ("before", "after")
_TIMES = 1.5  # how far the mean attention has to rise for part of the claim
_ALL = '"a perturbation that attracts all the attention on the perturbed key token" (Figure 3)'


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the attention of the first head of the first layer, before and after the word moves."""
    model = load(parameters["model"])
    read, word = shared.word_with_token(model, TITLE, TOKEN)
    assert word.position is not None
    changes = model.layer_changes(TITLE, word.position, head=HEAD, draws=1, seed=seed)
    return {
        "word": word.text,
        "tokens": list(word.tokens),
        "norm": changes.norm,
        "words": [each.text for each in read.words for _ in each.tokens],
        "before": changes.before[HEAD].tolist(),
        "after": changes.after[HEAD].tolist(),
    }


def grid(config: RunConfig) -> Iterable[Parameters]:
    for model in shared.models(config):
        yield {"model": model}


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per model, before and after, and pair of tokens; whether the one attended to is moved."""
    return [
        {"model": result["model"], "when": when, "word": result["word"], **cell}
        | {"moved": cell["column"] in result["tokens"]}
        for result in shared.first_trials(results)
        for when in WHEN
        for cell in shared.cells(result["words"], result[when])
    ]


def claims(rows: Table) -> list[Verdict]:
    verdicts = [_attracted(model, members) for (model,), members in curves(rows, "model").items()]
    return verdicts or [Verdict("attention moves to the token", TOO_FEW, None)]


def _attracted(model: str, cells: Points) -> Verdict:
    """Judge that every other token that sees the moved one attends to it more than to any other token.

    It is weaker than the source where only the mean attention to it rises.
    """
    moved = {row["column"] for row in cells if row["moved"]}
    looks: dict[str, dict[int, float]] = {when: {} for when in WHEN}  # by token, at all parts of the moved one
    others: dict[int, float] = {}  # the largest attention to another token, afterwards
    for row in cells:
        token = row["row"]
        if token in moved:
            continue
        if row["moved"]:
            looks[row["when"]][token] = looks[row["when"]].get(token, 0.0) + row["value"]
        elif row["when"] == "after":
            others[token] = max(others.get(token, 0.0), row["value"])
    before, after = (fmean(looks[when].values()) for when in WHEN)
    seeing = [token for token in looks["after"] if looks["before"][token] > 0 or looks["after"][token] > 0]
    turned = sum(looks["after"][token] > others[token] for token in seeing)
    more = sum(looks["after"][token] > looks["before"][token] for token in seeing)
    claim = f"{model}: all other tokens turn to {cells[0]['word']!r}"
    measured = f"{turned} of {len(seeing)} look at it most, {more} more than before"
    times = f"mean attention {before:.3f} to {after:.3f}, {after / before:.1f} times"
    if turned == len(seeing):
        return Verdict(claim, f"{measured}; {times}", True, source=_ALL)
    rises = after >= _TIMES * before
    return Verdict(claim, measured if rises else f"{measured}; {times}", False, times if rises else "", source=_ALL)


def plot(rows: Table, figure: style.Figure) -> None:
    def title(model: str, when: str) -> str:
        return f"{model}, {when}"

    for axes, (model, _), cells in style.panels(figure, rows, ["model", "when"], title, columns=2, size=(5.4, 4.6)):
        shared.draw_cells(figure, axes, cells, max(row["value"] for row in rows if row["model"] == model))


FIGURE = shared.experiment(
    name="fig3-scores",
    title="Attention moves to the word that attracts it",
    about="Attention scores of the first head of the first layer for the title of a paper, before and after its sixth "
    "token is moved along the direction that attracts the attention of this head, by its own norm.",
    trial=trial,
    grid=grid,
    table=table,
    claims=claims,
    plot=plot,
)
