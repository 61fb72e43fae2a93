"""Options that take several values at once: ``--lengths 16 64 240`` is ``--lengths 16 --lengths 64 --lengths 240``."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

SEVERAL = ("--lengths",)


class Greedy(TyperCommand):
    """A command whose options named in `SEVERAL` go on until the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread_out(args))


def spread_out(arguments: list[str]) -> list[str]:
    """The arguments with the name of such an option repeated before each of its values."""
    found: list[str] = []
    name: str | None = None
    fresh = False  # whether the name stands there already, waiting for its first value
    for argument in arguments:
        if argument.startswith("-") and not _is_number(argument):
            name = argument if argument in SEVERAL else None
            fresh = name is not None
            found.append(argument)
        else:
            found += [argument] if name is None or fresh else [name, argument]
            fresh = False
    return found


def _is_number(argument: str) -> bool:
    try:
        float(argument)
    except ValueError:
        return False
    return True
