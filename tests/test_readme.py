"""The README's examples print what follows them."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from wordsway import cli

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```(python|text)\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example_prints_what_follows_it() -> None:
    kinds = [kind for kind, _ in BLOCKS]
    code, expected = BLOCKS[kinds.index("python")][1], BLOCKS[kinds.index("python") + 1][1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue() == expected


COMMANDS = [
    (text.removeprefix("$ ").strip(), BLOCKS[place + 1][1])
    for place, (_, text) in enumerate(BLOCKS)
    if text.startswith("$ wordsway")
]


def test_the_commands_are_found() -> None:
    assert [command.split()[1] for command, _ in COMMANDS] == ["flips", "measure", "text", "reproduce"]


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=[command.split()[1] for command, _ in COMMANDS])
def test_a_command_prints_what_follows_it(
    command: str,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", shlex.split(command))
    with contextlib.suppress(SystemExit):
        cli.main()
    assert _lasting(capsys.readouterr().out) == _lasting(expected)


def _lasting(table: str) -> list[list[str]]:
    """The words of each line, without the seconds and megabytes of a trial, which differ from run to run."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    return [[word for k, word in enumerate(line) if not (line[0].isdigit() and k in (5, 6))] for line in lines]
