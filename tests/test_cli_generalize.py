"""`wordsway generalize`: records with the promised keys, a table for people, and one line for every mistake."""

import json

import pytest

from wordsway.cli import main

SMALL = ["generalize", "raf", "--n", "5", "--d", "6", "--samples", "8"]
KEYS = {"map", "n", "d", "samples", "training", "loss", "penalty", "seed", "gamma", "error", "bound", "interpolates"}


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_json_has_a_record_for_each_training_loss_penalty_and_trial(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run([*SMALL, "--penalty", "0", "--penalty", "1", "--trials", "2", "--json"], capsys)
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(records) == 2 * 2 * 2 * 2
    assert all(set(record) >= KEYS | {"lambda_min", "seconds"} for record in records)
    assert len({(r["training"], r["loss"], r["penalty"], r["seed"]) for r in records}) == len(records)


def test_a_trial_does_not_depend_on_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--training", "fine-tuned", "--loss", "error", "--json"]
    both = _run([*SMALL, *chosen, "--trials", "2"], capsys)[1].splitlines()
    alone = json.loads(_run([*SMALL, *chosen, "--seed", "1"], capsys)[1])
    again = json.loads(both[1])
    assert {name: again[name] for name in KEYS} == {name: alone[name] for name in KEYS}


def test_the_table_tells_the_share_below_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(SMALL, capsys)
    assert code == 0
    assert "of 4 points below the line (2 - gamma)^2" in out
    assert out.count("re-trained") == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--loss", "errr"], "did you mean 'error'"),
        (["--training", "tuned"], "fine-tuned, re-trained"),
        (["--penalty", "-1"], "penalty must be a finite number, at least 0"),
        (["--samples", "1"], "at least 2"),
        (["--data", "imbd"], "did you mean 'imdb'"),
        (["--word", "9"], "word"),
        (["--trials", "0"], "trials"),
        (["--radius", "-1"], "radius"),
    ],
)
def test_a_mistake_is_one_line(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = _run([*SMALL, *options], capsys)
    assert code == 1
    assert out == ""
    assert error.count("\n") == 1
    assert words in error
