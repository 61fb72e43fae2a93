"""What the figures of pre-trained models share: models of a config, and attention as records, rows and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.experiment import Estimate, Parameters, RunConfig, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

ENCODER, DECODER = "minilm", "smollm2"


def models(config: RunConfig) -> Sequence[str]:
    """The offline encoder and decoder, or the one model that is asked for."""
    return (ENCODER, DECODER) if config.model is None else (config.model,)


def flat(name: str, words: Sequence[str], scores: Tensor) -> dict[str, Any]:
    """A square matrix of attention as plain values of a record, and the words of its rows."""
    record: dict[str, Any] = {f"{name} words": "\n".join(words)}
    for row, values in enumerate(scores.tolist()):
        for column, value in enumerate(values):
            record[f"{name} {row} {column}"] = value
    return record


def matrix(name: str, record: Mapping[str, Any]) -> tuple[list[str], list[list[float]]]:
    """What `flat` was given."""
    words = record[f"{name} words"].split("\n")
    size = range(len(words))
    return words, [[record[f"{name} {row} {column}"] for column in size] for row in size]


def cells(name: str, record: Mapping[str, Any]) -> Table:
    """The matrix as tidy rows, one for each pair of words."""
    words, scores = matrix(name, record)
    return [
        {"row": row, "column": column, "from": words[row], "to": words[column], "value": value}
        for row, values in enumerate(scores)
        for column, value in enumerate(values)
    ]


def picture(figure: Figure, axes: Axes, rows: Table, top: float) -> None:
    """Such rows as a picture: a word on the left looks at those below."""
    words = [row["to"] for row in rows if row["row"] == 0]
    scores = [[row["value"] for row in rows if row["row"] == place] for place in range(len(words))]
    image = axes.imshow(scores, cmap="viridis", vmin=0.0, vmax=top)
    axes.set_xticks(range(len(words)), words, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(words)), words, fontsize=8)
    axes.grid(False)
    figure.colorbar(image, ax=axes, fraction=0.046, pad=0.04)


def estimate(parameters: Parameters) -> Estimate:
    """Seconds and memory of one trial: a model, and some passes through it."""
    small = parameters["model"] == ENCODER
    return Estimate(4.0 if small else 15.0, (1 if small else 2) * 10**9)
