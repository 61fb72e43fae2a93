"""The command hear: curves of models and maps, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from wordsway.cli import main
from wordsway.models.hearing import Curve

QUICK = ["hear", "--lengths", "8", "16", "--texts", "2", "--steps", "2"]


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, error = capsys.readouterr()
    return int(end.value.code or 0), out, error


def test_one_object_a_length(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run([*QUICK, "--json"], capsys)
    assert code == 0
    records = [json.loads(line) for line in out.splitlines()]
    assert [(one["model"], one["n"]) for one in records] == [
        (name, n) for name in ("minilm", "rf", "raf") for n in (8, 16)
    ]
    assert all(one["texts"] == 2 and one["sensitivity"] > 0 and one["on"] == "last" for one in records)


def test_a_word_that_moves_nothing_has_no_exponent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Curve("silent", (8, 16), ((0.0, 0.0), (0.0, 0.0)))
    monkeypatch.setattr("wordsway.models.hearing.hear", lambda *_, **__: silent)
    code, out, _ = _run([*QUICK, "--no-maps", "--json"], capsys)
    assert code == 0
    assert [json.loads(line)["exponent"] for line in out.splitlines()] == [None, None]
    code, out, _ = _run([*QUICK, "--no-maps"], capsys)
    assert code == 0
    assert out.splitlines()[-3].split() == ["exponent", "-"]


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run([*QUICK, "--no-maps", "--model", "minilm", "--model", "gpt2-random"], capsys)
    assert code == 0
    assert "word sensitivity against the length of the context, on last" in out
    assert "gpt2-random" in out
    assert "exponent" in out
    assert "rf" not in out.replace("perf", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hear", "--lengths", "0"], "lengths must be an integer >= 1, got 0"),
        (["hear", "--lengths", "600"], "lengths must be at most 512, which minilm reads, got 600"),
        (["hear", "--lengths", "4"], "lengths must be at least 6"),
        (["hear", "--model", "minilmm"], "did you mean 'minilm'"),
        ([*QUICK, "--on", "next"], "next needs a model that predicts the next token, got minilm"),
        ([*QUICK, "--word", "9"], "word must be a position from 0 to 3 or a word of the text, got 9"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = _run(arguments, capsys)
    assert code == 1
    assert out == ""
    assert words in error
    assert error.count("\n") == 1


def test_lengths_are_checked_for_all_models_before_the_first_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from wordsway.models import hearing

    monkeypatch.setattr(hearing, "hear", None)  # must not be called
    code, out, error = _run(["hear", "--model", "smollm2", "--model", "minilm", "--lengths", "600"], capsys)
    assert (code, out) == (1, "")
    assert error == "wordsway: lengths must be at most 512, which minilm reads, got 600\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_curves_that_are_whole_are_not_lost(
    as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from wordsway.models import hearing

    def interrupted(*_: object) -> Iterator[hearing.Curve]:
        yield hearing.Curve("rf", (8, 16), ((1.0, 3.0), (0.5, 0.5)))
        raise KeyboardInterrupt

    monkeypatch.setattr(hearing, "map_curves", interrupted)
    code, out, _ = _run([*QUICK, *(["--json"] if as_json else [])], capsys)
    assert code == 130
    assert "minilm" in out
    assert "rf" in out
