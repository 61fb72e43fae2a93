"""The command flips: verdicts on one text and on a file of texts."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from models import small_transformers, tiny

from cli.conftest import Run
from wordsway.models.model import Model

TEXT = "The film was long."
WORDS = ["the", "film", "was", "long", "short", "good", "bad", "rain", "."]


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """The folder of a small classifier."""
    folder = tmp_path / "classifier"
    folder.mkdir()
    tokenizer = tiny.write_tokenizer(folder, WORDS)
    network = small_transformers.make("bert-classifier", vocab_size=tokenizer.get_vocab_size())
    assert isinstance(network, transformers.PreTrainedModel)
    network.to(torch.float32).save_pretrained(folder)  # type: ignore[arg-type]
    return folder


def test_a_verdict_as_json_and_on_a_terminal(run: Run, classifier: Path) -> None:
    (row,) = run("flips", TEXT, "--model", classifier, "--candidates", "vocabulary", "--json").rows
    assert row["verdict"] in ("flips", "safe")
    assert row["flip"] == (row["verdict"] == "flips")
    assert {"text", "word", "replacement", "before", "after", "candidates", "passes", "class_before"} <= set(row)
    printed = run("flips", TEXT, "--model", classifier, "--candidates", "vocabulary").out
    assert row["verdict"] in printed
    assert f"{row['tried']} of 28 candidates were tried" in printed


def test_shares_are_shown_where_all_were_tried(run: Run, classifier: Path) -> None:
    (row,) = run("flips", TEXT, "--model", classifier, "--candidates", "vocabulary", "--exhaustive", "--json").rows
    assert (row["tried"], [word["tried"] for word in row["words"]]) == (28, [7, 7, 7, 7, 0])


def test_shares_of_a_budget_are_ranges(run: Run) -> None:
    text = "The film was not good, but the acting was brilliant."
    printed = run("flips", text, "--candidates", "near:9", "--exhaustive", "--budget", "60").out
    assert "60 of 90 candidates were tried" in printed
    (line,) = [line for line in printed.splitlines() if " good " in line and "->" not in line]
    low, high = (float(one) for one in (line.split()[-3], line.split()[-1]))
    assert line.split()[-2] == "to"
    assert 0 < low < high <= 1


def test_a_file_of_texts_goes_on_after_a_text_that_cannot_be_read(run: Run, classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    path.write_text('text\n"The film was long."\n"   "\n"Good rain."\n')
    result = run("flips", "--input", path, "--model", classifier, "--candidates", "vocabulary")
    assert result.code == 1
    assert result.out.count("candidates were tried") == 2
    assert "not measured 1" in result.out
    assert "text 1 (line 3 of" in result.err
    printed = run("flips", "--input", path, "--model", classifier, "--candidates", "vocabulary", "--json").out
    assert [json.loads(row)["line"] for row in printed.splitlines()] == [0, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either TEXT or --input FILE"),
        ([TEXT, "--column", "text"], "--column needs --input"),
        (["--input", "x.csv", "--word", "0"], "--word and --input exclude each other"),
    ],
)
def test_options_that_exclude_each_other(run: Run, arguments: list[str], message: str) -> None:
    result = run("flips", *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.replace("│", " ").split())


def test_an_exhaustive_run_of_one_text_continues_after_an_interrupt(
    run: Run, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    flips = Model.flips

    def stopped(self: Model, text: Any, **options: Any) -> Any:
        tried.append(options["words"][0].text)
        if tried == ["The", "film", "was"]:
            raise KeyboardInterrupt
        return flips(self, text, **options)

    command = ("flips", TEXT, "--model", classifier, "--candidates", "vocabulary", "--exhaustive", "--json")
    (plain,) = run(*command).rows
    monkeypatch.setattr(Model, "flips", stopped)
    stored = (*command, "--out", tmp_path / "store")
    first = run(*stored)
    assert (first.code, first.out) == (130, "")
    assert "2 of 4 words are stored, run the same command again to continue" in first.err
    (row,) = run(*stored).rows
    assert tried == ["The", "film", "was", "was", "long"]
    assert row["passes"] == plain["passes"] + 3  # each word evaluates the text, too
    volatile = {"passes", "evaluations", "seconds", "peak_mb"}
    for name in set(plain) - volatile:
        assert row[name] == (pytest.approx(plain[name], rel=1e-5) if isinstance(plain[name], float) else plain[name])
    assert run(*stored).rows[0]["words"] == plain["words"]
    assert len(tried) == 5  # nothing is tried twice
    other = run(*stored, "--label", "0").rows[0]  # another question, although of the same text
    assert len(tried) == 9
    assert other["total"] == plain["total"]


def test_a_store_needs_words_that_are_tried_completely(run: Run, tmp_path: Path) -> None:
    for options in ((), ("--exhaustive", "--budget", "3")):
        assert "--out needs --exhaustive without --budget" in " ".join(
            run("flips", TEXT, "--out", tmp_path, *options).err.split()
        )
    assert not list(tmp_path.iterdir())
