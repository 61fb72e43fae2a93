"""`wordsway lipschitz`: records with the promised keys, a table for people, and one line for every mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models import small_transformers as small

from wordsway.cli import main
from wordsway.cli.greedy import spread_out

SMALL = ["lipschitz", "--layer", "1", "--lengths", "4", "9"]
KEYS = {"model", "layer", "n", "lipschitz", "residual", "products", "upper", "lower", "seconds"}


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def _records(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    code, out, _ = _run([*arguments, "--json"], capsys)
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_json_has_a_record_for_each_layer_length_and_trial(capsys: pytest.CaptureFixture[str]) -> None:
    records = _records([*SMALL, "--layer", "0", "--trials", "2"], capsys)
    asked = {(layer, n, seed) for layer in (0, 1) for n in (4, 9) for seed in (0, 1)}
    assert {(r["layer"], r["n"], r["seed"]) for r in records} == asked
    assert len(records) == len(asked)
    for record in records:
        assert set(record) >= KEYS
        assert record["model"] == "minilm"
        assert record["residual"] <= 1e-4 * record["lipschitz"]
        assert max(record["lipschitz"], record["lower"]) < record["upper"]


def test_a_trial_does_not_depend_on_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    both = _records([*SMALL, "--trials", "2"], capsys)
    alone = _records([*SMALL, "--seed", "1"], capsys)
    assert [r["lipschitz"] for r in both if r["seed"] == 1] == [r["lipschitz"] for r in alone]


def test_a_mask_changes_the_constant(capsys: pytest.CaptureFixture[str]) -> None:
    plain, masked = (_records([*SMALL, *mask], capsys) for mask in ([], ["--causal"]))
    assert [r["causal"] for r in (*plain, *masked)] == [False, False, True, True]
    assert plain[1]["lipschitz"] != masked[1]["lipschitz"]


def test_adversarial_contexts_are_their_own_lower_bound_and_can_be_climbed(capsys: pytest.CaptureFixture[str]) -> None:
    plain = _records([*SMALL, "--adversarial"], capsys)
    higher = _records([*SMALL, "--adversarial", "--steps", "3"], capsys)
    for one, other in zip(plain, higher, strict=True):
        assert one["lower"] == one["lipschitz"] < other["lipschitz"] < other["upper"]
        assert one["data"] == "adversarial"


def test_a_model_that_reads_little_is_measured_at_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.make("bert", dtype=torch.float32, max_position_embeddings=8).save_pretrained(tmp_path)
    capsys.readouterr()
    code, _, error = _run(["lipschitz", "--model", str(tmp_path), "--layer", "0", "--adversarial", "--json"], capsys)
    assert (code, error) == (0, "")


def test_too_few_products_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = _records(["lipschitz", "--layer", "0", "--lengths", "9", "--adversarial", "--products", "2"], capsys)
    assert record["products"] == 2
    (record,) = _records(["lipschitz", "--layer", "0", "--lengths", "9", "--products", "4"], capsys)
    assert record["status"].startswith("stopped after 4 products")
    code, out, _ = _run(["lipschitz", "--layer", "0", "--lengths", "9", "--products", "4"], capsys)
    assert code == 0
    assert "1 of 1 stopped before they converged: raise --products" in out


def test_the_table_tells_how_the_constants_grow(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run([*SMALL, "--trials", "2"], capsys)
    assert code == 0
    assert "layer 1: grows like n^" in out
    assert "minilm, imdb" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--layer", "6"], "the layer must be 0..5, got 6: minilm has 6 layers"),
        (["--layer", "-1"], "the layer must be 0..5, got -1"),
        (["--lengths", "0"], "lengths must be an integer >= 1, got 0"),
        (["--lengths", "16", "600"], "lengths must be at most 512"),
        (["--adversarial", "--lengths", "1"], "lengths must be at least 2 with --adversarial, got 1"),
        (["--adversarial", "--trials", "2"], "trials must be 1 with --adversarial"),
        (["--steps", "3"], "steps must be at least 0, and 0 without --adversarial, got 3"),
        (["--products", "1"], "products must be at least 2, got 1"),
        (["--trials", "0"], "trials must be an integer >= 1, got 0"),
        (["--seed", "-1"], "seed must be an integer"),
        (["--model", "./nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = _run(["lipschitz", *options], capsys)
    assert code == 1
    assert out == ""
    assert error.count("\n") == 1
    assert words in error


def test_a_length_that_is_no_number_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = _run(["lipschitz", "--lengths", "16", "many"], capsys)
    assert code == 2
    assert "--lengths" in error
    assert "integer" in error


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--lengths", "1", "2", "--json"], ["--lengths", "1", "--lengths", "2", "--json"]),
        (["--lengths=1", "--lengths", "2", "3"], ["--lengths=1", "--lengths", "2", "--lengths", "3"]),
        (["--layer", "1", "2"], ["--layer", "1", "2"]),
        (["--lengths", "-1", "2"], ["--lengths", "-1", "--lengths", "2"]),
        (["--lengths"], ["--lengths"]),
        ([], []),
    ],
)
def test_values_of_one_option_may_follow_each_other(given: list[str], expected: list[str]) -> None:
    assert spread_out(given) == expected
