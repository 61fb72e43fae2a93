"""`wordsway swaps`: a record a replacement, a table for people, and one line for every mistake."""

import json
from typing import Any

import pytest

from wordsway.cli import main
from wordsway.errors import InputError
from wordsway.models import Model, load

NO_WORD = "word must be a position from 0 to 3 or a word of the text"
TEXT = "I love her smile"
QUICK = ("--checks", "20")


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["swaps", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def _records(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    code, out, err = _run([*arguments, *QUICK, "--json"], capsys)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_json_has_the_best_replacements(capsys: pytest.CaptureFixture[str]) -> None:
    records = _records([TEXT, "--word", "3", "--top", "4"], capsys)
    found = load("minilm").swaps(TEXT, 3, top=4, checks=20)
    assert [{key: record[key] for key in found.records()[0]} for record in records] == found.records()
    assert [record["rank"] for record in records] == [1, 2, 3, 4]
    for record in records:
        assert record["text"] == f"I love her {record['word']}"
        assert (record["replaced"], record["checked"], record["exhaustive"]) == ("smile", 20, False)
        assert record["shortfall"] is None
    named = _records([TEXT, "--word", "smile", "--top", "4"], capsys)
    assert [record["token"] for record in named] == [record["token"] for record in records]


def test_options_reach_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--on", "pooled", "--seed", "5", "--any-form", "--any-case"]
    records = _records([TEXT, "--word", "1", "--top", "2", *options], capsys)
    found = load("minilm").swaps(TEXT, 1, top=2, checks=20, on="pooled", seed=5, whole=False, casing=False)
    assert [record["token"] for record in records] == [swap.token for swap in found.swaps]
    assert records[0]["candidates"] == found.candidates
    assert records[0]["candidates"] > _records([TEXT, "--word", "1"], capsys)[0]["candidates"]


@pytest.mark.parametrize(
    ("flag", "name", "value"),
    [
        ("--any-form", "whole", False),
        ("--any-case", "casing", False),
        ("--exhaustive", "exhaustive", True),
        ("--compare", "compare", True),
        ("--cut", "cut", True),
        ("--chat", "chat", True),
    ],
)
def test_each_flag_reaches_the_model_and_is_off_unless_given(
    flag: str, name: str, value: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def stop(self: Model, *arguments: object, **named: Any) -> None:
        seen.append(named)
        raise InputError("seen")

    monkeypatch.setattr(Model, "swaps", stop)
    for flags in ([flag], []):
        assert _run([TEXT, "--word", "1", *flags], capsys)[2] == "wordsway: seen\n"
    assert [named[name] for named in seen] == [value, not value]


def test_people_read_the_ranking_and_the_new_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    records = _records([TEXT, "--word", "3", "--top", "2"], capsys)
    code, out, err = _run([TEXT, "--word", "3", "--top", "2", *QUICK], capsys)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith('minilm, word 3 "smile" replaced; measured on last')
    for record in records:
        assert any(line.split()[:2] == [str(record["rank"]), record["word"]] for line in lines)
    assert f"I love her {records[0]['word']}" in lines
    assert f"20 of {records[0]['candidates']} candidates were tried, those that rank first" in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["", "--word", "0"], "text must have a word at least, got none: special tokens and blanks do not count"),
        (["[CLS]", "--word", "0"], "text must have a word at least, got none: special tokens and blanks do not count"),
        ([TEXT, "--word", "4"], f"{NO_WORD}, got 4: 0 I, 1 love, 2 her, 3 smile"),
        ([TEXT, "--word", "-1"], f"{NO_WORD}, got -1: 0 I, 1 love, 2 her, 3 smile"),
        ([TEXT, "--word", "hate"], f"{NO_WORD}, got 'hate': 0 I, 1 love, 2 her, 3 smile"),
        ([TEXT, "--word", "0", "--top", "0"], "top must be an integer >= 1, got 0"),
        (
            [TEXT, "--word", "0", "--on", "next"],
            "next needs a model that predicts the next token, got minilm, which does not: measure on last instead",
        ),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run([*arguments, *QUICK], capsys)
    assert (code, out) == (1, "")
    assert err == f"wordsway: {message}\n"


@pytest.mark.parametrize("arguments", [[TEXT], [TEXT, "--word", "1", "--exhaustive", "--compare"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(arguments, capsys)
    assert (code, out) == (2, "")
    assert "Usage: wordsway swaps" in err
