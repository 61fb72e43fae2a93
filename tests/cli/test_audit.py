"""The command audit: results, exit codes, exports, and mistakes in one line."""

import csv
import json
from pathlib import Path

import pytest
from experiments.test_audit import write_classifier

from cli.conftest import Run


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifier(tmp_path_factory.mktemp("model") / "classifier")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "x.csv"
    path.write_text("text,label\nthe film was good,1\nrain,0\n,0\n[red]dark[/red] song,1\nblue house,0\n")
    return path


def test_the_result_is_printed_exported_and_judged(run: Run, classifier: Path, texts: Path, tmp_path: Path) -> None:
    fixed = ["audit", texts, "--model", classifier, "--candidates", "vocabulary", "--workers", 1, "--out", tmp_path]
    (row,) = run(*fixed, "--json", "--export", tmp_path / "rows.csv").rows
    assert (row["texts"], row["measured"], row["verdicts"]["not measured"]) == (5, 4, 1)
    with (tmp_path / "rows.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [one["verdict"] == "flips" for one in rows].count(True) == row["flips"]["count"] > 0
    assert "must have at least one word" in rows[2]["reason"]
    import pandas as pd

    run(*fixed, "--json", "--export", tmp_path / "rows.parquet")
    assert pd.read_parquet(tmp_path / "rows.parquet")["text"].tolist() == [one["text"] for one in rows]
    printed = run(*fixed)
    assert printed.code == 0
    assert "one-word robust accuracy" in printed.out
    assert "Clopper-Pearson" in printed.out
    assert "not measured: text 2 (line 4)" in printed.out
    assert "texts are from the column 'text' (guessed)" in printed.err
    assert "labels are from 'label' (guessed): 0 = LABEL_0, 1 = LABEL_1" in printed.err
    share = row["flips"]["value"]
    assert run(*fixed, "--json", "--fail-above", share).code == 0
    failed = run(*fixed, "--json", "--fail-above", share / 2)
    assert (failed.code, json.loads(failed.out)) == (1, row)
    assert failed.err == f"wordsway: the share of texts that flip is {share:.4g}, above {share / 2:g}\n"
    against = run(*fixed, "--against", classifier, "--fail-above", 0)
    assert against.code == 0
    assert "Side by side" in against.out
    assert "Bonett-Price" in against.out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "cannot read texts from"),
        ("a.doc", b"a", "a file of texts must end in .txt, .csv, .jsonl, .parquet or be a folder"),
        ("a.csv", b"text,label\n", "must hold at least one text, got none"),
        ("a.csv", b"n,m\n,\n", "must have a column of texts, got the columns n, m"),
        ("a.jsonl", b'{"text": "a"}\n{', "line 2 of"),
        ("a.parquet", b"no parquet", "must be a Parquet file"),
        ("none.parquet", None, "cannot read texts from"),
    ],
)
def test_bad_files_are_one_line(run: Run, tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert message in run("audit", tmp_path / name, "--out", tmp_path / "out").refusal
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--column", "txt"], "must have the column 'txt' (did you mean 'text'?)"),
        (["--export", "x.xls"], "the ending of --export must be one of csv, jsonl, parquet, got 'xls'"),
        (["--export", "none/x.csv"], "--export must name a file in an existing folder"),
        (["--limit", "0"], "limit must be"),
        (["--model", "minilm"], "an audit needs a model that decides"),
        (["--candidates", "nearest"], "candidates must be near:K"),
        (["--against", "no-such-model"], "no-such-model"),
    ],
)
def test_mistakes_are_one_line(run: Run, texts: Path, tmp_path: Path, options: list[str], message: str) -> None:
    assert message in run("audit", texts, "--workers", 1, "--out", tmp_path / "out", *options).refusal


def test_options_that_exclude_each_other(run: Run, texts: Path) -> None:
    for options in (["--workers", 2, "--dask", "tcp://x:1"], ["--fail-above", 2]):
        assert run("audit", texts, *options).code == 2
