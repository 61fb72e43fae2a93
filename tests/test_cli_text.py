"""`wordsway text`: a record a word, a strip and a table for people, many texts that are stored, one line a mistake."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from wordsway.cli import main, text_page
from wordsway.cli.text_views import strip, visible
from wordsway.experiments.store import Store
from wordsway.experiments.texts import EXPERIMENT, Options, weights_print
from wordsway.models import Model, heat, load
from wordsway.models.heat import Piece

NO_WORD = "word must be a position from 0 to 3 or a word of the text"
TEXT = "I love her smile"
QUICK = ("--steps", "2")


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["text", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def _records(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    code, out, err = _run([*arguments, *QUICK, "--json"], capsys)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def _refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that must be refused."""
    code, out, err = _run([*arguments, *QUICK], capsys)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert err.startswith("wordsway: ")
    return err.removeprefix("wordsway: ").rstrip("\n")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns without colours."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


# One text


def test_json_has_what_the_model_says_of_each_word(capsys: pytest.CaptureFixture[str]) -> None:
    records = _records([TEXT], capsys)
    assert records == load("minilm").profile(TEXT, steps=2).records()
    assert [record["word"] for record in records] == TEXT.split()
    assert list(records[0])[:4] == ["position", "word", "tokens", "sensitivity"]


def test_options_reach_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--word", "3", "--word", "love", "--word", "3", "--on", "2", "--radius", "0.5", "--seed", "7"]
    asked = {"words": [3, 1], "on": 2, "radius": 0.5, "seed": 7, "steps": 2}
    assert _records([TEXT, *options], capsys) == load("minilm").profile(TEXT, **asked).records()  # type: ignore[arg-type]


def test_special_tokens_are_measured_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    records = _records([TEXT, "--special"], capsys)
    assert [record["position"] for record in records] == [None, 0, 1, 2, 3, None]
    assert [records[0]["word"], records[-1]["word"]] == ["[CLS]", "[SEP]"]


def test_the_fast_mode_says_how_much_it_misses(capsys: pytest.CaptureFixture[str], plain: None) -> None:
    records = _records([TEXT, "--mode", "fast"], capsys)
    assert all(0 <= record["shortfall"] < 1 for record in records)
    _, out, _ = _run([TEXT, "--mode", "fast", *QUICK], capsys)
    assert f"fast mode: {100 * records[0]['shortfall']:.0f}% below what the search finds" in out


@pytest.mark.usefixtures("plain")
def test_people_read_what_was_measured_on_each_word_and_which_moves_most(capsys: pytest.CaptureFixture[str]) -> None:
    records = _records([TEXT], capsys)
    code, out, err = _run([TEXT, *QUICK], capsys)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert out.startswith("minilm, measured on last, the last hidden state of all tokens; search")
    (line,) = [line for line in out.splitlines() if line.startswith("[CLS]")]
    best = max(records, key=lambda record: record["sensitivity"])
    assert f"{best['word']}█" in line
    shares = [record["sensitivity"] / best["sensitivity"] for record in records]
    assert line.count("█") == sum(share**heat._CURVE >= 7 / 8 for share in shares)
    for record in records:
        row = [
            cells
            for cells in map(str.split, out.splitlines())
            if cells[:2] == [f"{record['position']}", record["word"]]
        ]
        assert float(row[0][-1]) == pytest.approx(record["sensitivity"], rel=1e-3)
    assert f'word {best["position"]} "{best["word"]}" moves the model most' in out


@pytest.mark.parametrize(("variable", "coloured"), [("NO_COLOR", False), ("TERM", True)])
def test_the_strip_has_colours_where_there_may_be_some(
    variable: str, coloured: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in (("FORCE_COLOR", "1"), ("COLORTERM", "truecolor"), (variable, "xterm")):
        monkeypatch.setenv(name, value)
    _, out, _ = _run([TEXT, *QUICK], capsys)
    assert ("\x1b[30;48;2;240;125;50m" in out) is coloured  # the strongest background, behind the top word
    assert ("her█" in out or "smile█" in out or "love█" in out or "I█" in out) is not coloured


def test_the_strip_in_ascii_numbers_the_words_and_leaves_special_tokens() -> None:
    made = [Piece("[CLS]", special=True), Piece("a", 1.0), Piece(".", 0.0, apart=False), Piece("b")]
    assert strip(made, colours=False, ascii_only=True).plain == "[CLS] a(8).(1) b"
    shown = strip(made, colours=True)
    assert shown.plain == "[CLS] a. b"
    styles = {shown.plain[span.start : span.end]: str(span.style) for span in shown.spans}
    assert styles == {"[CLS]": "bright_black", "a": "black on rgb(240,125,50)", ".": "black on rgb(255,243,230)"}


def test_what_steers_a_terminal_is_not_passed_on(capsys: pytest.CaptureFixture[str], plain: None) -> None:
    assert visible("a\x1b[31mb\u202ec\x07") == "a\ufffd[31mb\ufffdc\ufffd"
    assert visible("é 家 👩\u200d👧") == "é 家 👩\u200d👧"
    _, out, _ = _run(["red \x1b[31m text", *QUICK], capsys)
    assert "\x1b" not in out


def test_the_strip_fits_any_console() -> None:
    console = Console(file=io.StringIO(), width=10, color_system=None)
    console.print(strip([Piece("word", 0.5)] * 9, colours=False))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "text must have a word at least, got none: special tokens and blanks do not count"),
        (["[CLS]"], "text must have a word at least, got none: special tokens and blanks do not count"),
        ([TEXT, "--word", "4"], f"{NO_WORD}, got 4: 0 I, 1 love, 2 her, 3 smile"),
        ([TEXT, "--radius", "-1"], "radius must be a number > 0, got -1: leave it out for the norm of each word's own"),
        (
            [TEXT, "--radius", "nan"],
            "radius must be a number > 0, got nan: leave it out for the norm of each word's own",
        ),
        ([TEXT, "--mode", "quick"], "mode must be one of search, fast, got 'quick'"),
        ([TEXT, "--seed", "-1"], "seed must be an integer with 0 <= seed < 2^63, got -1"),
        ([TEXT, "--on", "9"], "on must be a layer from 0 to 6, got 9: minilm has 6 layers"),
        ([TEXT, "--chat"], "the model must have a chat template, got none: give the text as it is"),
        (
            [TEXT, "--on", "next"],
            "next needs a model that predicts the next token, got minilm, which does not: measure on last instead",
        ),
        (
            ["word " * 600],
            "the text must have at most 512 tokens, which is all that minilm reads, got 602: "
            "shorten it, or ask for it to be cut",
        ),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _refusal(arguments, capsys) == message


def test_an_unknown_model_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    said = _refusal([TEXT, "--model", "./minilmm"], capsys)
    assert "got nothing there: check it" in said
    assert said.endswith("(did you mean 'minilm'?)")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [TEXT, "--input", "a.txt"],
        [TEXT, "--column", "a"],
        [TEXT, "--out", "a"],
        [TEXT, "--layers"],
        [TEXT, "--word", "1", "--special"],
        ["--input", "a.txt", "--html", "a.html"],
    ],
)
def test_options_that_do_not_go_together_are_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(arguments, capsys)
    assert (code, out) == (2, "")
    assert "Usage: wordsway text" in err


def test_a_long_text_is_cut_where_asked(capsys: pytest.CaptureFixture[str], plain: None) -> None:
    code, out, _ = _run(["word " * 600, "--cut", "--word", "0", *QUICK], capsys)
    assert code == 0
    assert "the last 90 tokens of the text were cut off" in out


# The page


def test_the_page_has_the_words_their_replacements_and_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_page, "_CHECKS", 9)
    monkeypatch.setattr(text_page, "_STEPS", 2)
    page = tmp_path / "page.html"
    code, _, err = _run(["a <b>bold</b> film", *QUICK, "--html", str(page), "--layers"], capsys)
    assert (code, err) == (0, f"the page is {page}\n")
    content = page.read_text(encoding="utf-8")
    assert "<b>bold" not in content
    assert content.count("<h3>word ") == 3
    assert "replacements: " in content
    assert content.count("<rect ") == 7  # what the first layer reads, and 6 layers
    assert "the last hidden state of all tokens" in content
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_is_whole_where_nobody_reads_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("wordsway.cli.text_views.print_text", leave)
    monkeypatch.setattr(text_page, "_CHECKS", 3)
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit):
        main(["text", TEXT, *QUICK, "--html", str(page)])
    assert "</html>" in page.read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Options, "measure", _never)
    assert "--html must name a file in an existing folder" in _refusal(
        [TEXT, "--html", str(tmp_path / "none" / "page.html")], capsys
    )


# Many texts


def _never(*arguments: object, **named: object) -> None:
    raise AssertionError("measured again")


def _file(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def _many(path: str, folder: Path, *options: str) -> list[str]:
    return ["--input", path, "--out", str(folder / "out"), *options]


def test_texts_of_a_file_are_measured_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _many(_file(tmp_path, "a.txt", f"{TEXT}\n\nA film\r\n{TEXT}\n"), tmp_path)
    records = _records(arguments, capsys)
    assert [record["line"] for record in records] == [0] * 4 + [1] * 2 + [2] * 4
    alone = load("minilm").profile(TEXT, steps=2).records()
    assert [{key: record[key] for key in record if key != "line"} for record in records[:4]] == alone
    with Store(tmp_path / "out" / "store.sqlite", readonly=True) as store:
        assert len(store.finished(EXPERIMENT, 1)) == 2
    monkeypatch.setattr(Model, "profile", _never)
    assert _records(arguments, capsys) == records


@pytest.mark.parametrize("change", [["--radius", "2"], ["--on", "pooled"], ["--seed", "1"], ["--word", "0"]])
def test_other_options_are_measured_anew(change: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = _many(_file(tmp_path, "a.txt", "A film"), tmp_path)
    first = _records(arguments, capsys)
    assert _records([*arguments, *change], capsys) != first


def test_an_interrupted_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _many(_file(tmp_path, "a.txt", "A film\nA play\nA song"), tmp_path)
    real, measured = Options.measure, []

    def stop(self: Options, model: Model, text: str, progress: bool = False) -> Any:
        measured.append(text)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return real(self, model, text, progress)

    monkeypatch.setattr(Options, "measure", stop)
    code, out, err = _run([*arguments, *QUICK, "--json"], capsys)
    assert code == 130
    assert err == "wordsway: interrupted: 1 of 3 texts are stored, run the same command again to go on\n"
    assert len(out.splitlines()) == 2
    assert len(_records(arguments, capsys)) == 6
    assert measured == ["A film", "A play", "A play", "A song"]


def test_a_text_that_cannot_be_measured_does_not_stop_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plain: None
) -> None:
    path = _file(tmp_path, "a.csv", f'id,text\n1,"A\nfilm"\n2,\n3,{"word " * 600}\n4,A play\n')
    code, out, err = _run([*_many(path, tmp_path), *QUICK], capsys)
    assert code == 1
    lines = err.splitlines()
    assert lines[0].startswith(f"wordsway: text 1 (line 4 of {path}): text must have a word at least")
    assert lines[1].startswith(f"wordsway: text 2 (line 5 of {path}): the text must have at most 512 tokens")
    assert lines[2:] == ["wordsway: 2 of 4 texts could not be measured"]
    assert "text 3 (line 6)" in out
    assert "texts: measured 2, stored before 0, not measurable 2" in out
    _, out, _ = _run([*_many(path, tmp_path), *QUICK], capsys)
    assert "texts: measured 0, stored before 2, not measurable 2" in out


def test_json_lines_have_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path, "a.jsonl", '\ufeff{"id": 1, "said": "A film"}\n\n{"said": "A play"}\n')
    records = _records(_many(path, tmp_path, "--column", "said"), capsys)
    assert [record["word"] for record in records] == ["A", "film", "A", "play"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "id,txt\n1,A film\n",
            "{} must have the column 'text' (did you mean 'txt'?), got the columns id, txt: ",
        ),
        ("a.csv", "", "{} must have the column 'text', got the columns none: name one with --column"),
        (
            "a.jsonl",
            '{"a": "b"}',
            "line 1 of {} must have the column 'text', got the columns a: name one with --column",
        ),
        ("a.jsonl", '{"text": "a"}\n{"text": 3}', "text in line 2 of {} must be a string, got a int: mend it"),
        ("a.jsonl", "[1]", "line 1 of {} must be a JSON object, got a list: write one object a line"),
        ("a.jsonl", "{", "line 1 of {} must be a JSON object, got Expecting property name"),
        ("a.txt", b"good\nb\xe4d\n", "{} must be UTF-8, got 0xe4 at byte 6, in line 2: save it as UTF-8"),
        ("a.txt", "\n \n", "{} must hold a text at least, got none: write one a line"),
        ("a.doc", "a", "--input must end in .txt, .csv, .jsonl, got {}: rename or convert it"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(
    name: str, content: str | bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, name, content)
    assert _refusal(_many(path, tmp_path), capsys).startswith(message.format(path))
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in _refusal(["--input", str(tmp_path / "none.txt")], capsys)


def test_a_mistake_in_the_options_is_not_told_for_each_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path, "a.txt", "A film\nA play")
    assert _refusal(_many(path, tmp_path, "--on", "class"), capsys).startswith("class needs a model with classes")


def test_weights_that_were_trained_further_are_another_model() -> None:
    import copy
    import dataclasses

    import torch

    model = load("minilm")
    other = dataclasses.replace(model, network=copy.deepcopy(model.network))
    assert weights_print(other) == weights_print(model)
    with torch.no_grad():
        for weight in other.network.encoder.layer[3].parameters():
            weight += 1e-3
    assert weights_print(other) != weights_print(model)
