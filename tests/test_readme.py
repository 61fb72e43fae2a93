"""The README's examples print what it says."""

import contextlib
import io
import re
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


def test_the_command_prints_the_table_that_follows_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    position = next(i for i, (_, text) in enumerate(BLOCKS) if text.startswith("$ wordsway measure"))
    command, expected = BLOCKS[position][1].split()[1:], BLOCKS[position + 1][1]
    monkeypatch.setattr("sys.argv", command)
    with contextlib.suppress(SystemExit):
        cli.main()
    assert _lasting(capsys.readouterr().out) == _lasting(expected)


def _lasting(table: str) -> list[list[str]]:
    """The words of each line, without the seconds and megabytes of a trial, which differ from run to run."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    return [[word for k, word in enumerate(line) if not (line[0].isdigit() and k in (6, 7))] for line in lines]
