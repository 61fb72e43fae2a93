"""Shared by the figures of pre-trained models: the models of a configuration, and attention as rows and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from wordsway.experiments import Estimate, Experiment, Parameters, RunConfig, Table, TrialResult
from wordsway.experiments.experiment import canonical
from wordsway.figures import _style as style

if TYPE_CHECKING:
    from wordsway.models import Model
    from wordsway.models.words import Text, Word

ENCODER, DECODER = "minilm", "smollm2"


def models(config: RunConfig) -> Sequence[str]:
    """Return the offline encoder and decoder, or the model of the configuration."""
    return (ENCODER, DECODER) if config.model is None else (config.model,)


def word_with_token(model: Model, text: str, token: int) -> tuple[Text, Word]:
    """Split a text, and return it with the first word that ends at or after a token."""
    read = model.read(text)
    return read, next(word for word in read.scored if word.tokens[-1] >= token)


def first_trials(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the first trial of each point: attention does not depend on the seed, so others only repeat it."""
    return list({canonical(result.parameters): result for result in reversed(results)}.values())[::-1]


def cells(words: Sequence[str], scores: Sequence[Sequence[float]]) -> Table:
    """Return a square matrix of attention as tidy rows, one per pair of words."""
    return [
        {"row": row, "column": column, "from": words[row], "to": words[column], "value": value}
        for row, values in enumerate(scores)
        for column, value in enumerate(values)
    ]


def draw_cells(figure: style.Figure, axes: style.Axes, rows: Table, top: float) -> None:
    """Draw such rows as an image: a word on the left attends to those below."""
    words = [row["to"] for row in rows if row["row"] == 0]
    scores = [[row["value"] for row in rows if row["row"] == place] for place in range(len(words))]
    image: Any = axes.imshow(scores, cmap="viridis", vmin=0.0, vmax=top)
    axes.set_xticks(range(len(words)), words, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(words)), words, fontsize=8)
    axes.grid(False)
    figure.colorbar(image, ax=axes, fraction=0.046, pad=0.04, label="attention")


def estimate(parameters: Parameters) -> Estimate:
    """Estimate one trial: loading a model, and some passes through it."""
    small = parameters["model"] == ENCODER
    return Estimate(4.0 if small else 15.0, (1 if small else 2) * 10**9)


experiment = partial(Experiment, trials={"quick": 1, "paper": 1}, estimate=estimate, version=3)
