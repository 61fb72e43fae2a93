"""The figures of pre-trained models: trials on tiny models, tidy tables, and claims that can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from experiments.made import record_of

from wordsway.experiments.experiment import RunConfig, TrialResult
from wordsway.figures import _models as shared
from wordsway.figures import all_figures, fig1, fig3_layers, fig3_scores
from wordsway.figures._style import render

FIG1, LAYERS, SCORES = (all_figures()[name] for name in ("fig1", "fig3-layers", "fig3-scores"))


def test_a_matrix_survives_its_record() -> None:
    scores = torch.tensor([[0.25, 0.75], [0.5, 0.125]])
    record = shared.flat("before", ["a b", "c"], scores)
    assert shared.matrix("before", record) == (["a b", "c"], scores.tolist())
    cells = shared.cells("before", record)
    assert cells[2] == {"row": 1, "column": 0, "from": "c", "to": "a b", "value": 0.5}


@pytest.mark.parametrize("figure", [FIG1, LAYERS, SCORES], ids=lambda figure: figure.name)
def test_a_model_replaces_the_offline_ones(figure: Any) -> None:
    offline = {point["model"] for point in figure.grid(RunConfig())}
    assert offline == {"minilm", "smollm2"}
    assert {point["model"] for point in figure.grid(RunConfig(model="some/model"))} == {"some/model"}


def test_the_text_has_about_two_hundred_tokens() -> None:
    from wordsway.models import load

    assert 180 <= len(load("minilm").read(fig3_layers.TEXT).ids) <= 230


# Figure 1


def _first(looks: tuple[float, float], moved: float) -> list[TrialResult]:
    record: dict[str, Any] = {"part": "scores"}
    for number, last in enumerate(looks):
        scores = torch.full((4, 4), 0.2)
        scores[:3, 3] = last
        record |= shared.flat(str(number), fig1.SENTENCES[number].split(), scores)
    answers: dict[str, Any] = {"part": "prompts", "total_variation": moved, "divergence": moved}
    answers |= {f"{kind} {answer}": 0.3 for kind in fig1.KINDS for answer in fig1.ANSWERS}
    return [
        TrialResult("fig1", {"part": "scores", "model": "minilm"}, 0, record),
        TrialResult("fig1", {"part": "prompts", "model": "smollm2"}, 0, answers),
    ]


def test_claims_of_figure_1() -> None:
    assert [v.holds for v in FIG1.claims(FIG1.table(_first((0.1, 0.2), 0.3)))] == [True, True]
    assert [v.holds for v in FIG1.claims(FIG1.table(_first((0.1, 0.105), 0.0)))] == [False, False]
    assert [v.holds for v in FIG1.claims([])] == [None]
    causal = FIG1.claims(FIG1.table(_first((0.0, 0.0), 0.3)))  # no word of a decoder sees the last one
    assert [v.claim for v in causal] == ["another word in the prompt moves the distribution of the answer"]
    rows = FIG1.table(_first((0.1, 0.2), 0.3))
    assert len({tuple(row) for row in rows}) == 1  # the same keys everywhere
    assert render(lambda figure: FIG1.plot(rows, figure), "png").startswith(b"\x89PNG")


def test_a_trial_of_figure_1_on_the_offline_models() -> None:
    scores = record_of(FIG1, {"part": "scores", "model": "minilm"}, 0)
    words, values = shared.matrix("1", scores)
    assert words == fig1.SENTENCES[1].split()
    assert all(0 < value < 1 for row in values for value in row)
    assert record_of(FIG1, {"part": "prompts", "model": "minilm"}, 0) == {"part": "none"}
    assert FIG1.table([TrialResult("fig1", {"part": "prompts", "model": "minilm"}, 0, {"part": "none"})]) == []


# Figure 3


def _layers(attracting: float, worst: float | None = None) -> list[TrialResult]:
    record: dict[str, Any] = {"layers": 3, "tokens": 200, "word": "word", "norm": 1.0}
    for layer in range(4):
        high = worst if worst is not None and layer == 2 else attracting
        record |= {f"attracting {layer}": high, f"noise {layer}": 0.1, f"deviation {layer}": 0.01}
    return [TrialResult("fig3-layers", {"model": "minilm", "draws": 8}, 0, record)]


def test_claims_of_the_layers() -> None:
    assert [v.holds for v in LAYERS.claims(LAYERS.table(_layers(0.3)))] == [True]
    assert [v.holds for v in LAYERS.claims(LAYERS.table(_layers(0.15)))] == [False]
    assert [v.holds for v in LAYERS.claims(LAYERS.table(_layers(0.5, worst=0.09)))] == [False]
    assert [v.holds for v in LAYERS.claims([])] == [None]
    rows = LAYERS.table(_layers(0.3))
    assert render(lambda figure: LAYERS.plot(rows, figure), "png").startswith(b"\x89PNG")


def _scores(after: float) -> list[TrialResult]:
    record: dict[str, Any] = {"word": "c", "first": 2, "last": 2, "norm": 1.0}
    for when, value in (("before", 0.1), ("after", after)):
        scores = torch.full((4, 4), 0.3)
        scores[:, 2] = value
        record |= shared.flat(when, list("abcd"), scores)
    return [TrialResult("fig3-scores", {"model": "minilm"}, 0, record)]


def test_claims_of_the_scores() -> None:
    assert [v.holds for v in SCORES.claims(SCORES.table(_scores(0.4)))] == [True]
    assert [v.holds for v in SCORES.claims(SCORES.table(_scores(0.12)))] == [False]
    assert [v.holds for v in SCORES.claims([])] == [None]
    rows = SCORES.table(_scores(0.4))
    assert SCORES.claims(rows)[0].measured == "0.100 to 0.400, 4.0 times; 3 of 3 look at it more"
    some = _scores(0.05)  # the mean may rise where most look at it less, and those that do not see it do not count
    some[0].record.update(
        shared.flat("before", list("abcd"), torch.tensor([[0.0] * 4, [0.1] * 4, [0.1] * 4, [0.1] * 4]))
        | shared.flat("after", list("abcd"), torch.tensor([[0.0] * 4, [0.05] * 4, [0.1] * 4, [0.9] * 4]))
    )
    verdict = SCORES.claims(SCORES.table(some))[0]
    assert (verdict.measured, verdict.holds) == ("0.067 to 0.317, 4.7 times; 1 of 2 look at it more", True)
    assert render(lambda figure: SCORES.plot(rows, figure), "png").startswith(b"\x89PNG")


def test_trials_of_figure_3_on_the_offline_encoder(tmp_path: Path) -> None:
    record = record_of(LAYERS, {"model": "minilm", "draws": 2}, 0)
    assert record["layers"] == 6
    assert record["attracting 0"] == pytest.approx(record["noise 0"], rel=1e-4)
    assert LAYERS.claims(LAYERS.table([TrialResult("fig3-layers", {"model": "minilm", "draws": 2}, 0, record)]))[
        0
    ].holds
    found = record_of(SCORES, {"model": "minilm"}, 0)
    assert (found["word"], found["first"]) == ("of", fig3_scores.TOKEN)
    assert SCORES.claims(SCORES.table([TrialResult("fig3-scores", {"model": "minilm"}, 0, found)]))[0].holds
