"""Trials of the figures: what the library returns for the same sizes and seed, as the store keeps it."""

import json
import math
from typing import Any

import pytest
import torch
from experiments.made import record_of

from figures.laws import figure
from wordsway import feature_robustness, gaussian_context, load, local_lipschitz, response_sensitivity
from wordsway.cli import main
from wordsway.data import image_samples
from wordsway.experiments import TrialResult
from wordsway.figures import fig1, fig3_layers, meanfield, ntk_flow, ntk_loss, smooth_bounds
from wordsway.generalization import prediction_gap
from wordsway.maps.catalogue import MapOptions, map_named
from wordsway.models import review_contexts
from wordsway.seeds import generator, signs
from wordsway.smoothness.mean_field_search import mean_field_lipschitz

TINY: list[dict[str, Any]] = [
    {"map": "rf", "data": "gaussian", "d": 8, "n": 6},
    {"map": "drf", "data": "gaussian", "d": 8, "depth": 2, "n": 6},
    {"map": "raf", "data": "gaussian", "d": 8, "n": 6},
    {"map": "relu-raf", "data": "gaussian", "d": 8, "n": 6},
]


def _judged(name: str, parameters: dict[str, Any]) -> list[bool | None]:
    """The verdicts on one trial."""
    result = TrialResult(name, parameters, 0, record_of(figure(name), parameters))
    return [verdict.holds for verdict in figure(name).claims(figure(name).table([result]))]


@pytest.mark.parametrize("parameters", TINY, ids=lambda parameters: parameters["map"])
def test_word_sensitivity_is_that_of_the_first_word_as_measure_prints_it(
    parameters: dict[str, Any], capsys: Any
) -> None:
    depth = ["--depth", "2"] if "depth" in parameters else []
    with pytest.raises(SystemExit):
        main(["measure", parameters["map"], "--n", "6", "--d", "8", "--seed", "3", "--json", *depth])
    line = json.loads(capsys.readouterr().out)
    record = record_of(figure("fig2-rf"), parameters, 3)
    assert record == record_of(figure("fig2-rf"), parameters, 3)
    for name in ("ceiling", "ceiling_kind", "dtype", "word"):
        assert record[name] == line[name]
    assert record["status"] == "converged"
    if parameters["map"] == "relu-raf":  # it searches longer than measure does, and may find a little more
        assert line["sensitivity"] * (1 - 1e-9) <= record["sensitivity"] <= line["sensitivity"] * 1.02
    else:
        options = MapOptions(depth=parameters.get("depth"))
        response = map_named(parameters["map"]).respond(gaussian_context(6, 8, 3), 0, options, 3)
        expected = response_sensitivity(response, 0, seed=3).value
        assert record["sensitivity"] == line["sensitivity"] == expected


def test_a_simulation_has_every_training_loss_and_penalty() -> None:
    parameters = {"map": "raf", "data": "imdb", "n": 5, "d": 8, "samples": 4}
    record = record_of(figure("fig5"), parameters, 1)
    keys = [(search["training"], search["loss"], search["penalty"]) for search in record["searches"]]
    assert len(keys) == len(set(keys)) == 2 * 3 * 4
    for search in record["searches"]:
        assert search["bound"] == pytest.approx((2 - search["gamma"]) ** 2)
    rows = figure("fig6").table([TrialResult("fig5", parameters, 1, record)])
    assert [(row["training"], row["penalty"]) for row in rows] == [
        (training, penalty) for training in ("fine-tuned", "re-trained") for penalty in (1.0, 0.1, 0.01)
    ]


def test_a_prediction_gap() -> None:
    record = record_of(figure("appendix-e"), {"map": "rf", "data": "imdb", "n": 5, "d": 8, "samples": 4}, 2)
    contexts, labels = review_contexts(5, 5, 8, 2)
    phi = map_named("rf").build(5, 8, None, 2)
    expected = prediction_gap(phi, contexts[:-1], labels[:-1], contexts[-1], float(labels[-1]), seed=2)
    assert (record["gap"], record["ceiling"]) == (expected.value, expected.ceiling)


def test_attention_and_answers_of_the_offline_models() -> None:
    scores = record_of(figure("fig1"), {"part": "scores", "model": "minilm"})["scores"]
    assert [found["words"] for found in scores] == [sentence.split() for sentence in fig1.SENTENCES]
    assert all(0 < value < 1 for row in scores[1]["scores"] for value in row)
    assert record_of(figure("fig1"), {"part": "prompts", "model": "minilm"}) == {"prompts": None}  # it answers nothing


def test_layers_and_scores_of_the_offline_encoder() -> None:
    assert 180 <= len(load("minilm").read(fig3_layers.TEXT).ids) <= 230
    parameters = {"model": "minilm", "draws": 2}
    changes = record_of(figure("fig3-layers"), parameters)["changes"]
    assert len(changes["attracting"]) == len(changes["noise"]) == 7
    assert changes["attracting"][0] == pytest.approx(changes["noise"][0], rel=1e-4)
    assert _judged("fig3-layers", parameters) == [True]
    scores = record_of(figure("fig3-scores"), {"model": "minilm"})
    assert (scores["word"], scores["tokens"]) == ("of", [6])
    assert len(scores["words"]) == len(scores["before"]) == len(scores["after"][0])
    assert _judged("fig3-scores", {"model": "minilm"}) == [True]


def test_a_sweep_is_what_single_measurements_give() -> None:
    point = {"kind": "rf", "data": "gaussian", "d": 8, "samples": "5 9", "widths": "30 60", "activations": "tanh cos"}
    points = record_of(figure("robust-rf"), point, 4)["points"]
    assert len(points) == 8
    inputs, labels = gaussian_context(10, 8, 4), signs(generator(4, "labels"), 9)
    alone = feature_robustness("rf", inputs[:5], labels[:5], inputs[-1], 60, "cos", seed=4)
    (found,) = (p["sensitivity"] for p in points if (p["activation"], p["samples"], p["width"]) == ("cos", 5, 60))
    assert found == pytest.approx(alone.value, rel=1e-8)
    images = {"kind": "ntk", "data": "digits", "d": 64, "samples": "9", "widths": "5", "activations": "tanh"}
    (found,) = record_of(figure("robust-ntk"), images, 1)["points"]
    X, y = image_samples("digits", 10, 1)
    alone = feature_robustness("ntk", X[:9], y[:9], X[9], 5, "tanh", seed=1)
    assert found["sensitivity"] == pytest.approx(alone.value, rel=1e-8)


def test_a_kernel_is_singular_with_few_parameters() -> None:
    few = record_of(figure("ntk-lambda"), {"data": "gaussian", "samples": 30, "width": 5})
    many = record_of(figure("ntk-lambda"), {"data": "digits", "samples": 30, "width": 30})
    assert (few["status"], many["status"]) == ("singular", "regular")
    assert abs(few["smallest_eigenvalue"]) < 1e-10 * few["mean_eigenvalue"]
    assert 0 < many["smallest_eigenvalue"] < many["mean_eigenvalue"]


def test_a_flow_stays_below_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ntk_flow, "SAMPLES", 5)
    record = record_of(figure("ntk-flow"), {"width": 20}, 1)
    start = record["actual"][0]
    assert record["linear"][0] == pytest.approx(start)
    assert record["bound"] == pytest.approx([start * math.exp(-time / 2) for time in ntk_flow.TIMES])
    assert all(later < bound for later, bound in zip(record["linear"][1:], record["bound"][1:], strict=True))


def test_a_training_fits_with_many_parameters_only() -> None:
    record = record_of(figure("ntk-loss"), {"samples": 10, "width": 6, "steps": 1500})
    assert record["parameters"] == 3 * 36 + 6
    assert record["loss"] < ntk_loss._FITTED
    assert record_of(figure("ntk-loss"), {"samples": 40, "width": 2, "steps": 200})["loss"] > 0.1


def test_a_constant_on_a_review() -> None:
    record = record_of(figure("smooth-real"), {"model": "minilm", "layer": 2, "causal": True, "n": 9}, 3)
    model = load("minilm")
    context = model.layer_inputs(model.review_tokens(1, 9, seed=3), 2)[0].double()
    assert record["lipschitz"] == local_lipschitz(model.attention(2, causal=True), context, seed=3).value
    assert (record["status"], record["dtype"]) == ("converged", "float64")


def test_adversarial_constants_are_below_their_bound_and_of_one_direction_for_all_lengths() -> None:
    point = {"model": "minilm", "layer": 2, "causal": False}
    short, long = (record_of(figure("smooth-adversarial"), {**point, "n": n}) for n in (16, 64))
    assert (short["head"], short["kind"]) == (long["head"], long["kind"])
    assert long["lipschitz"] < long["upper"]
    assert math.log(long["lipschitz"] / short["lipschitz"], 4) == pytest.approx(0.5, abs=0.05)


def test_constants_are_between_their_bounds() -> None:
    record = record_of(figure("smooth-bounds"), {"panel": smooth_bounds.HEAD, "n": 6, "steps": 10})
    assert record["first_word"] <= record["adversarial"] <= record["climbed"] <= record["covariance"]
    assert record["typical"] <= record["covariance"] <= record["discrete"]
    parameters = {"panel": "minilm, layer 3", "model": "minilm", "n": 4, "steps": 1}
    layer = record_of(figure("smooth-bounds"), parameters)
    assert layer["adversarial_bound"] is None
    assert layer["typical"] <= layer["covariance"]


@pytest.mark.parametrize("masked", [False, True])
def test_mean_field_attention_of_norm_one(masked: bool) -> None:
    layer = meanfield.layer(3, 4)
    assert layer.query is not None
    assert layer.key is not None
    A = layer.key.mT @ layer.query / math.sqrt(3)
    assert float(torch.linalg.matrix_norm(A, ord=2)) == pytest.approx(1, rel=1e-12)
    record = record_of(figure("meanfield"), {"d": 3, "points": 3, "masked": masked, "R": 1.2}, 4)
    found = mean_field_lipschitz(layer, 1.2, 3, 4, masked=masked)
    assert (record["value"], record["lower"], record["two_point"]) == (found.value, found.lower, found.two_point)
    assert record["lower"] < record["value"] < record["upper"]
