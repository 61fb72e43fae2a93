"""Commands run in this process, on a terminal of 80 columns without colours."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from wordsway.cli import main


class Result(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON objects of a command that succeeded without a complaint."""
        assert (self.code, self.err) == (0, "")
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def refusal(self) -> str:
        """The one line of a command that was refused."""
        assert (self.code, self.out) == (1, "")
        assert self.err.startswith("wordsway: ")
        assert self.err.count("\n") == 1
        return self.err.removeprefix("wordsway: ").rstrip("\n")


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "NO_COLOR", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(int(ended.value.code or 0), printed.out, printed.err)

    return call
