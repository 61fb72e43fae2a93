"""Figure 3, third plot: a perturbation that attracts attention moves every layer, noise of its length hardly does."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.claims import TOO_FEW, curves, deviation
from wordsway.experiments.experiment import Experiment, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.figures import _models as shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Relative changes after every layer, of the attracting perturbation and of noise."""
    from wordsway.models import load

    model = load(parameters["model"])
    read = model.read(TEXT)
    word = next(one for one in read.scored if one.tokens[-1] >= TOKEN)
    assert word.position is not None
    found = model.layer_changes(TEXT, word.position, draws=parameters["draws"], seed=seed)
    record: dict[str, Any] = {"layers": model.layers, "tokens": len(read.ids), "word": word.text, "norm": found.norm}
    for layer in range(model.layers + 1):
        noise = found.noise[:, layer].tolist()
        record[f"attracting {layer}"] = float(found.attracting[layer])
        record[f"noise {layer}"] = statistics.fmean(noise)
        record[f"deviation {layer}"] = deviation(noise)
    return record


def grid(config: RunConfig) -> Iterable[Parameters]:
    for model in shared.models(config):
        yield {"model": model, "draws": 8 if config.scale == "quick" else 32}


def table(finished: Sequence[TrialResult]) -> Table:
    """One row for each model and layer."""
    rows: Table = []
    for one in finished:
        for layer in range(one["layers"] + 1):
            kept = {name: one[f"{name} {layer}"] for name in ("attracting", "noise", "deviation")}
            rows.append({"model": one["model"], "layer": layer, **kept, "tokens": one["tokens"], "word": one["word"]})
    return rows


def claims(rows: Table) -> list[Verdict]:
    found = []
    for (model,), members in curves(rows, "model").items():
        ratios = [row["attracting"] / row["noise"] for row in members if row["layer"] > 0]
        mean = statistics.fmean(ratios)
        claim = f"{model}: attracting attention changes layers {_TIMES:g} times as much as noise, and each one more"
        told = f"{mean:.2f} times on average, {min(ratios):.2f} to {max(ratios):.2f}"
        found.append(Verdict(claim, told, mean >= _TIMES and min(ratios) > 1))
    return found or [Verdict("an attracting perturbation changes more than noise", TOO_FEW, None)]


def plot(rows: Table, figure: Figure) -> None:
    from wordsway.figures import _style as style

    panels = list(curves(rows, "model").items())
    for place, ((model,), line) in enumerate(panels):
        axes = style.panel(figure, len(panels), place, f"{model}, {line[0]['tokens']} tokens", size=(4.8, 3.6))
        x = [row["layer"] for row in line]
        zero = [0.0] * len(x)
        style.curve(axes, x, [row["attracting"] for row in line], zero, [None] * len(x), "attracting", 0)
        noise, spread = [row["noise"] for row in line], [row["deviation"] for row in line]
        style.curve(axes, x, noise, spread, [None] * len(x), "noise of the same norm", 1)
        style.finish(axes, "layer", "relative change" if place == 0 else "", x[:: max(1, len(x) // 7)], False)


FIGURE = Experiment(
    name="fig3-layers",
    title="A word that attracts attention moves every layer",
    about="Relative change of the hidden state after every layer when one token of a text of about 200 tokens is moved "
    "in what the first layer reads (layer 0): along the direction that attracts attention, and along Gaussian noise of "
    "the same norm.",
    trial=trial,
    grid=grid,
    trials={"quick": 1, "paper": 1},
    table=table,
    claims=claims,
    plot=plot,
    estimate=shared.estimate,
    version=2,
)
