"""Ending a command in one line when it is interrupted from the keyboard."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

P = ParamSpec("P")


def interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """End a command in one line when it is interrupted from the keyboard."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt as stopped:
            print("wordsway:", stopped if stopped.args else "interrupted", file=sys.stderr)
            raise typer.Exit(130) from None

    return run
