"""Figure 3, third plot: a perturbation that attracts attention moves every layer, noise of its length hardly does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean

from wordsway.experiments import Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import TOO_FEW, Points, curves
from wordsway.figures import _models as shared
from wordsway.figures import _style as style
from wordsway.models import load

TEXT = (
    "A reader can hold a long text in mind and still be turned around by a single word in it. Take the word not out of "
    "a refusal, and it becomes a promise; write never where somebody wrote often, and a friend turns into a stranger. "
    "A model that reads for us should hear such a word wherever it stands, in a note of one line as well as in the "
    "middle of a report of many pages. Whether it does is a question about its features. Some features add up what all "
    "words say, each with about the same weight, and then one voice among hundreds is lost, however clearly it speaks. "
    "Others let every word choose whom it listens to, and a word that knows how to call is heard by all of them at "
    "once. Here we look for such a call: we move one word in the direction that draws the attention of the first layer "
    "to it, follow what happens from layer to layer, and compare it with a random move of the same length, which any "
    "sound reader should be able to ignore without any trouble at all."
)
TOKEN = 42
_TIMES = 2.0
_DEEPER = (
    '"after the first layer the embeddings are heavily modified, and [...] this change increases deeper" (Remark 5.2)'
)


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the relative changes after every layer, for the attracting perturbation and for noise."""
    model = load(parameters["model"])
    read, word = shared.word_with_token(model, TEXT, TOKEN)
    assert word.position is not None
    changes = model.layer_changes(TEXT, word.position, draws=parameters["draws"], seed=seed)
    return {"tokens": len(read.ids), "changes": changes}


def grid(config: RunConfig) -> Iterable[Parameters]:
    for model in shared.models(config):
        yield {"model": model, "draws": 8 if config.scale == "quick" else 32}


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per model and layer."""
    rows: Table = []
    for result in shared.first_trials(results):
        changes = result["changes"]
        columns = zip(*(changes[name] for name in ("attracting", "noise", "noise_deviation")), strict=True)
        for layer, values in enumerate(columns):
            numbers = dict(zip(("attracting", "noise", "deviation"), values, strict=True))
            origin = {"tokens": result["tokens"], "word": changes["word"]}
            rows.append({"model": result["model"], "layer": layer, **numbers, **origin})
    return rows


def claims(rows: Table) -> list[Verdict]:
    verdicts = []
    for (model,), members in curves(rows, "model").items():
        ratios = [row["attracting"] / row["noise"] for row in members if row["layer"] > 0]
        mean = fmean(ratios)
        claim = f"{model}: attracting attention changes layers {_TIMES:g} times as much as noise, and each one more"
        measured = f"{mean:.2f} times on average, {min(ratios):.2f} to {max(ratios):.2f}"
        verdicts += [Verdict(claim, measured, mean >= _TIMES and min(ratios) > 1), _deeper(model, members)]
    return verdicts or [Verdict("an attracting perturbation changes more than noise", TOO_FEW, None)]


def _deeper(model: str, rows: Points) -> Verdict:
    """Judge that the change grows from layer to layer; weaker if only the last one changes more than the first."""
    changes = [row["attracting"] for row in sorted(rows, key=lambda row: int(row["layer"])) if row["layer"] > 0]
    falls = sum(after < before for before, after in pairwise(changes))
    measured = f"{changes[0]:.3f} after the first layer, {changes[-1]:.3f} after the last"
    steps = f"it falls in {falls} of {len(changes) - 1} steps"
    grows = changes[-1] > changes[0]
    claim = f"{model}: the change grows from layer to layer"
    how = f"{steps} between them" if grows and falls else ""
    return Verdict(
        claim, measured if grows else f"{measured}; {steps}", grows and not falls, weaker=how, source=_DEEPER
    )


def plot(rows: Table, figure: style.Figure) -> None:
    def title(model: str, tokens: int) -> str:
        return f"{model}, {tokens} tokens"

    for axes, _, line in style.panels(figure, rows, ["model", "tokens"], title, size=(4.8, 3.6)):
        names = ("layer", "attracting", "noise", "deviation")
        x, attracting, noise, deviation = ([row[name] for row in line] for name in names)
        style.curve(axes, x, attracting, "attracting", 0)
        style.curve(axes, x, noise, "noise of the same norm", 1, deviation)
        style.finish(axes, "layer", "relative change", x[:: max(1, len(x) // 7)], False)


FIGURE = shared.experiment(
    name="fig3-layers",
    title="A word that attracts attention moves every layer",
    about="Relative change of the hidden state after every layer when one token of a text of about 200 tokens is moved "
    "in what the first layer reads (layer 0): along the direction that attracts attention, and along Gaussian noise of "
    "the same norm.",
    trial=trial,
    grid=grid,
    table=table,
    claims=claims,
    plot=plot,
)
