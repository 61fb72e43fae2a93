"""Any input, typed or in a file: a result or one line of error, never a traceback."""

import contextlib
import io
import tempfile
from pathlib import Path

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wordsway.cli import app, main

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# fmt: off
ODD = [
    "", " ", "-", "--", "-1", "0", "1", "2", "1.5", "nan", "inf", "-inf", "1e999", "9" * 40, "all", "none", "\u0663",
    "\U0001f642", "a\nb", "../..", "/dev/null", "x.npy", "x.csv", "%s", "{}", "'", '"', "<b>", "\u202e", "True", "null",
    "[]", "0x10", "1,2",
]
# fmt: on
BYTES = st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
VALUES = st.one_of(st.sampled_from(ODD), st.text(max_size=8))
SMALL = {
    "measure": ["raf", "--n", "2", "--d", "2"],
    "generalize": ["raf", "--n", "2", "--d", "2", "--samples", "3"],
    "lipschitz": ["--model", "nowhere"],
    "ntk": ["--samples", "3", "--width", "2", "--d", "2"],
    "robustness": ["rf", "--samples", "3", "--width", "2", "--d", "2"],
    "maps": [],
    "text": ["one word", "--model", "nowhere"],
    "swaps": ["one word", "--model", "nowhere"],
    "flips": ["one word", "--model", "nowhere"],
    "audit": ["nowhere.csv", "--model", "nowhere"],
    "serve": ["--model", "nowhere"],
    "length": ["--model", "nowhere"],
    "models": [],
    "reproduce": ["--dry-run"],
    "figures": [],
    "results show": ["--out", "nowhere"],
    "results export": ["--out", "nowhere"],
}
# with nothing else they do real work
WORKING = {"reproduce", "length", "lipschitz", "text", "swaps", "flips", "audit", "serve"}


def _options() -> dict[str, list[str]]:
    """The long options of each command, without --help."""
    group = typer.main.get_command(app)
    commands = dict(group.commands)  # type: ignore[attr-defined]
    commands |= {f"results {name}": one for name, one in commands.pop("results").commands.items()}
    return {
        name: [one for part in command.params for one in part.opts if one.startswith("--") and one != "--help"]
        for name, command in commands.items()
    }


OPTIONS = _options()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


def _run(arguments: list[str]) -> None:
    """Exit code 0, or 1 with one line, or 2 with how it is used."""
    err = io.StringIO()
    code: int | str | None = 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code
    printed = err.getvalue()
    assert code in (0, 1, 2, None), arguments
    assert "Traceback" not in printed
    if code == 1:
        assert printed.startswith("wordsway: ") or not printed, (arguments, printed)
        assert printed.count("\n") <= 1, (arguments, printed)


def test_every_command_is_tried() -> None:
    assert set(SMALL) == set(OPTIONS)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", SMALL)
@FEW
@given(data=st.data())
def test_odd_values_of_options(name: str, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.tuples(st.sampled_from(OPTIONS[name] or ["--help"]), VALUES), max_size=3))
    # what would run for long, write elsewhere, or reach out
    skipped = {"--trials", "--out", "--html", "--cluster", "--scale", "--workers", "--store", "--install-completion"}
    extra = [word for option, value in chosen if option not in skipped for word in (option, value)]
    _run([*name.split(), *SMALL[name], *extra])


@pytest.mark.usefixtures("elsewhere")
@FEW
@given(words=st.lists(st.one_of(st.sampled_from([*SMALL, "result", "measur", "--version"]), VALUES), max_size=4))
def test_odd_commands(words: list[str]) -> None:
    if words and words[0] in WORKING:
        words = ["--help", *words]
    _run(words)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("ending", ["txt", "csv", "jsonl"])
@FEW
@given(content=BYTES)
def test_odd_files_of_texts(ending: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"in.{ending}")
        path.write_bytes(content)
        _run(["text", "--input", str(path), "--model", "nowhere", "--out", f"{folder}/out"])


@FEW
@given(content=st.binary(max_size=300), head=st.booleans())
def test_odd_arrays(content: bytes, head: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.npy")
        path.write_bytes((b"\x93NUMPY\x01\x00" if head else b"") + content)
        _run(["measure", "raf", "--data", str(path)])
