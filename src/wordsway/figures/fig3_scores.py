"""Figure 3, fourth plot: the attention of the first head moves to the word that attracts it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.claims import TOO_FEW, Points, curves
from wordsway.experiments.experiment import Experiment, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.figures import _models as shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Towards Understanding the Word Sensitivity of Attention Layers: A Study via Random Features"
TOKEN = 6
HEAD = 0
WHEN = ("before", "after")
_TIMES = 1.5


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Attention of the first head of the first layer, before and after, and how much of it goes to the word."""
    from wordsway.models import load

    model = load(parameters["model"])
    read = model.read(TITLE)
    word = next(one for one in read.scored if one.tokens[-1] >= TOKEN)
    assert word.position is not None
    found = model.layer_changes(TITLE, word.position, head=HEAD, draws=1, seed=seed)
    names = [one.text for one in read.words for _ in one.tokens]
    record: dict[str, Any] = {"word": word.text, "first": word.tokens[0], "last": word.tokens[-1], "norm": found.norm}
    return record | shared.flat("before", names, found.before[HEAD]) | shared.flat("after", names, found.after[HEAD])


def grid(config: RunConfig) -> Iterable[Parameters]:
    for model in shared.models(config):
        yield {"model": model}


def table(finished: Sequence[TrialResult]) -> Table:
    """One row for each model, before and after, and pair of tokens; whether the one looked at is moved."""
    rows: Table = []
    for one in finished:
        moved = range(one["first"], one["last"] + 1)
        for when in WHEN:
            head = {"model": one["model"], "when": when, "word": one["word"]}
            cells = shared.cells(when, one.record)
            rows += [{**head, **cell, "moved": cell["column"] in moved} for cell in cells]
    return rows


def claims(rows: Table) -> list[Verdict]:
    found = [_drawn(model, members) for (model,), members in curves(rows, "model").items()]
    return found or [Verdict("attention moves to the token", TOO_FEW, None)]


def _drawn(model: str, cells: Points) -> Verdict:
    """That other tokens look at the moved one more than before, on average; how many of those that see it is told."""
    moved = {row["column"] for row in cells if row["moved"]}
    looks: dict[str, dict[int, float]] = {when: {} for when in WHEN}  # by token, at all parts of the moved one
    for row in cells:
        if row["moved"] and row["row"] not in moved:
            found = looks[row["when"]]
            found[row["row"]] = found.get(row["row"], 0.0) + row["value"]
    before, after = (statistics.fmean(looks[when].values()) for when in WHEN)
    seeing = [token for token in looks["after"] if looks["before"][token] > 0 or looks["after"][token] > 0]
    more = sum(looks["after"][token] > looks["before"][token] for token in seeing)
    word = cells[0]["word"]
    claim = f"{model}: other tokens look at {word!r} at least {_TIMES:g} times as much as before, on average"
    told = f"{before:.3f} to {after:.3f}, {after / before:.1f} times; {more} of {len(seeing)} look at it more"
    return Verdict(claim, told, after >= _TIMES * before)


def plot(rows: Table, figure: Figure) -> None:
    from wordsway.figures import _style as style

    panels = [(model, when) for (model,) in curves(rows, "model") for when in WHEN]
    for place, (model, when) in enumerate(panels):
        axes = style.panel(figure, len(panels), place, f"{model}, {when}", columns=2, size=(5.4, 4.6))
        top = max(row["value"] for row in rows if row["model"] == model)
        shared.picture(figure, axes, [row for row in rows if row["model"] == model and row["when"] == when], top)


FIGURE = Experiment(
    name="fig3-scores",
    title="Attention moves to the word that attracts it",
    about="Attention scores of the first head of the first layer for the title of a paper, before and after its sixth "
    "token is moved along the direction that attracts the attention of this head, by its own norm.",
    trial=trial,
    grid=grid,
    trials={"quick": 1, "paper": 1},
    table=table,
    claims=claims,
    plot=plot,
    estimate=shared.estimate,
)
