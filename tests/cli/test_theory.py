"""`generalize`, `lipschitz`, `ntk` and `robustness`: rows with the documented keys, tables, and independent trials."""

from pathlib import Path

import pytest
import torch
from models import small_transformers as small

import wordsway as ws
from cli.conftest import Run
from wordsway.cli.options import spread_out
from wordsway.models.blocks import block_bounds
from wordsway.smoothness import neighbourhood_bound

GENERALIZE = ("generalize", "raf", "--n", 5, "--d", 6, "--samples", 8)
LIPSCHITZ = ("lipschitz", "--layer", 1, "--lengths", 4, 9)
NTK = ("ntk", "--samples", 12, "--width", 6)
ROBUSTNESS = ("robustness", "ntk", "--samples", 12, "--d", 8, "--width", 5)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ((*GENERALIZE, "--training", "fine-tuned", "--loss", "error"), "gamma"),
        (LIPSCHITZ, "lipschitz"),
        ((*NTK, "--depth", 2), "smallest_eigenvalue"),
        (ROBUSTNESS, "sensitivity"),
    ],
)
def test_a_trial_does_not_depend_on_the_others(run: Run, command: tuple[object, ...], key: str) -> None:
    both = run(*command, "--trials", 2, "--json").rows
    alone = run(*command, "--seed", 1, "--json").rows
    assert [row[key] for row in both if row["seed"] == 1] == [row[key] for row in alone]
    assert [row[key] for row in both if row["seed"] == 0] != [row[key] for row in alone]


# generalize


@pytest.mark.parametrize("options", [(), ("--penalty", 12345.678)])
def test_the_table_of_simulations_is_not_cut_at_80_columns(run: Run, options: tuple[object, ...]) -> None:
    lines = run(*GENERALIZE, *options).out.splitlines()
    assert lines[2].split()[-1] == "change"
    assert ("penalty" in lines[2]) == bool(options)
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_a_row_for_each_training_loss_penalty_and_trial(run: Run) -> None:
    rows = run(*GENERALIZE, "--penalty", 0, "--penalty", 1, "--trials", 2, "--json").rows
    keys = {"map", "n", "d", "samples", "training", "loss", "penalty", "seed", "gamma", "error", "bound"}
    assert all(set(row) >= keys | {"interpolates", "lambda_min", "seconds"} for row in rows)
    assert len({(row["training"], row["loss"], row["penalty"], row["seed"]) for row in rows}) == len(rows) == 16


def test_training_may_start_from_random_parameters(run: Run) -> None:
    zero, none, two = (
        run(*GENERALIZE, *more, "--json").rows for more in ((), *(("--theta0-scale", s) for s in (0, 2)))
    )
    assert [row["theta0_scale"] for row in (zero[0], none[0], two[0])] == [0.0, 0.0, 2.0]
    assert [row["before"] for row in zero] == [row["before"] for row in none] != [row["before"] for row in two]
    assert "theta_0 of scale 2" in run(*GENERALIZE, "--theta0-scale", 2).out


def test_the_table_has_the_share_below_the_line(run: Run) -> None:
    code, out, _ = run(*GENERALIZE)
    assert code == 0
    assert "of 4 points below the line (2 - gamma)^2" in out
    assert out.count("re-trained") == 2
    assert "…" not in out


# lipschitz


def test_a_row_for_each_layer_length_and_trial(run: Run) -> None:
    rows = run(*LIPSCHITZ, "--layer", 0, "--trials", 2, "--json").rows
    points = {(layer, n, seed) for layer in (0, 1) for n in (4, 9) for seed in (0, 1)}
    assert {(row["layer"], row["n"], row["seed"]) for row in rows} == points
    assert len(rows) == len(points)
    for row in rows:
        assert row["model"] == "minilm"
        assert row["residual"] <= 1e-4 * row["lipschitz"]
        assert row["lipschitz"] < row["at_text"] < row["near"] < row["all_inputs"] < row["upper"]
        assert row["lower"] < row["upper"]
        assert row["seconds"] > 0


def test_adversarial_contexts_are_their_own_lower_bound_and_ascent_raises_it(run: Run) -> None:
    plain = run(*LIPSCHITZ, "--adversarial", "--json").rows
    higher = run(*LIPSCHITZ, "--adversarial", "--steps", 3, "--json").rows
    for row, raised in zip(plain, higher, strict=True):
        assert row["lower"] == row["lipschitz"] < raised["lipschitz"] < raised["upper"]
        assert row["data"] == "adversarial"


def test_a_text_is_measured_at_all_its_tokens(run: Run) -> None:
    command = ("lipschitz", "--layer", 1, "--text", "I love her smile")
    (row,) = run(*command, "--near", 0.05, "--json").rows
    model = ws.load("minilm")
    context = model.layer_inputs([model.tokens("I love her smile")], 1)[0].double()
    layer = model.attention(1)
    assert (row["n"], row["data"]) == (len(context), "text")
    assert row["lipschitz"] == ws.local_lipschitz(layer, context).value
    assert row["at_text"] == neighbourhood_bound(layer, context).value
    assert row["near_radius"] == 0.05 * float(context.norm(dim=-1).mean())
    assert row["near"] == neighbourhood_bound(layer, context, row["near_radius"]).value
    assert row["block"] is None
    out = run(*command).out
    assert all(name in out for name in ("constant", "at text", "near", "all inputs", "lower"))
    assert "block" not in out


def test_whole_blocks_are_bounded_on_request(run: Run) -> None:
    command = ("lipschitz", "--layer", 1, "--text", "I love her smile", "--blocks")
    (row,) = run(*command, "--json").rows
    assert row["block"] == block_bounds(ws.load("minilm"), "I love her smile")[1].block
    assert "block: upper bound at the text for the whole block" in " ".join(run(*command).out.split())
    masked = run(*command, "--causal", "--json").rows[0]
    assert masked["block"] != row["block"]
    refused = run("lipschitz", "--blocks", "--adversarial")
    assert refused.code == 1
    assert "blocks are bounded at texts" in refused.err


def test_a_model_that_reads_few_words_is_measured_at_all_of_them(run: Run, tmp_path: Path) -> None:
    small.make("bert", dtype=torch.float32, max_position_embeddings=8).save_pretrained(tmp_path)
    rows = run("lipschitz", "--model", tmp_path, "--layer", 0, "--adversarial", "--json").rows
    assert [row["n"] for row in rows] == [8]


def test_too_few_products_are_reported(run: Run) -> None:
    few = ("lipschitz", "--layer", 0, "--lengths", 9)
    (row,) = run(*few, "--adversarial", "--products", 2, "--json").rows
    assert row["products"] == 2
    (row,) = run(*few, "--products", 4, "--json").rows
    assert row["status"].startswith("stopped after 4 products")
    assert "1 of 1 stopped before they converged: raise --products" in run(*few, "--products", 4).out


def test_the_table_has_the_growth_of_the_constants(run: Run) -> None:
    out = run(*LIPSCHITZ, "--trials", 2, "--causal").out
    assert "layer 1: grows like n^" in out
    assert "minilm, causal, imdb" in out


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--lengths 1 2 --json", "--lengths=1 --lengths=2 --json"),
        ("--lengths 1,2 3", "--lengths=1 --lengths=2 --lengths=3"),
        ("--lengths=1 --lengths=2,3", "--lengths=1 --lengths=2 --lengths=3"),
        ("--layer 1 2,3", "--layer 1 2,3"),
        ("--lengths -1 2", "--lengths=-1 --lengths=2"),
        ("--lengths", "--lengths"),
        ("", ""),
    ],
)
def test_an_option_may_have_several_values(given: str, expected: str) -> None:
    assert spread_out(given.split()) == expected.split()


# ntk and robustness


def test_ntk_has_the_keys(run: Run) -> None:
    row, _ = run(*NTK, "--depth", 2, "--trials", 2, "--json").rows
    assert set(row) >= {"smallest_eigenvalue", "residual", "seconds"}
    assert (row["samples"], row["width"], row["depth"], row["parameters"], row["status"]) == (12, 6, 2, 42, "regular")
    (block,) = run(*NTK, "--layer", 2, "--json").rows
    assert (block["parameters"], block["status"]) == (6, "singular")  # 12 samples, 6 parameters
    (whole,) = run(*NTK, "--d", 4, "--json").rows
    assert (whole["d"], whole["parameters"]) == (4, 4 * 6 + 6 * 6 + 6)


@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_robustness_has_the_keys(run: Run, kind: str) -> None:
    command = ("robustness", kind, "--samples", 12, "--d", 8, "--width", 40)
    (row,) = run(*command, "--json").rows
    assert set(row) >= {"activation", "sensitivity", "seconds"}
    assert (row["kind"], row["samples"], row["d"], row["width"], row["seed"]) == (kind, 12, 8, 40, 0)
    assert row["fit"] < 1e-8
    (terms,) = run(*command, "--terms", "--json").rows
    assert terms["sensitivity"] == row["sensitivity"] <= terms["bound"]


def test_images_have_their_own_dimension_and_labels(run: Run) -> None:
    (kernel,) = run("ntk", "--samples", 20, "--width", 12, "--data", "digits", "--json").rows
    assert (kernel["d"], kernel["data"], kernel["status"]) == (64, "digits", "regular")
    command = ("robustness", "rf", "--samples", 20, "--width", 60, "--data", "digits")
    (row,) = run(*command, "--json").rows
    assert (row["d"], row["data"]) == (64, "digits")
    assert "rf features, N=20, digits, width 60" in run(*command).out


def test_tables_of_kernels(run: Run) -> None:
    assert "tangent kernel, N=12, d=6, width 6, 3 weights, tanh" in run(*NTK).out
    out = run(*ROBUSTNESS, "--terms").out
    assert "ntk features, N=12, d=8, width 5, tanh" in out
    assert "lambda min" in out
