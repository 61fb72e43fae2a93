"""Write docs/options.md: every command of the command line with its arguments and options, as the parser has them.

Run it as ``python tools/options.py`` after changing a command. The page is made from the parser's objects, not from the
output of ``--help``, so that it depends neither on the width of a terminal nor on the version of the library that draws
it.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from wordsway.cli import app

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"
WIDTH = 128
INTRO = """\
# All commands and options

This page is generated from the parser by `tools/options.py`. [The command line](command-line.md) has examples, what is
printed, and the keys of the JSON.

Every command also takes `--help`, or `-h`, which prints this for a terminal. A dash in the last column means that the
parser has no default; the meaning then says what the command does.
"""


def reference() -> str:
    """Return the text of the page."""
    parts = [INTRO]
    for path, command in _commands("wordsway", typer.main.get_command(app)):
        parts.append(f"## {path}\n\n    {_usage(path, command)}\n")
        parts += [f"{textwrap.fill(paragraph, WIDTH)}\n" for paragraph in _paragraphs(command.help)]
        if shown := [one for one in command.params if not getattr(one, "hidden", False)]:
            rows = ["| name | meaning | default |", "|---|---|---|", *map(_row, shown)]
            parts.append("\n".join(rows) + "\n")
        parts += [f"{_example(paragraph)}\n" for paragraph in _paragraphs(command.epilog)]
    return "\n".join(parts)


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command and those below it, each with its full name."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _commands(f"{path} {name}", below)


def _usage(path: str, command: Any) -> str:
    """Return the line of usage."""
    words = [path, *(_argument(one) for one in command.params if not _is_option(one))]
    if any(map(_is_option, command.params)):
        words.append("[OPTIONS]")
    if hasattr(command, "commands"):
        words.append("[COMMAND]" if command.invoke_without_command else "COMMAND")
    return " ".join(words)


def _is_option(parameter: Any) -> bool:
    return any(name.startswith("-") for name in parameter.opts)


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name = name if parameter.required else f"[{name}]"
    return name if parameter.nargs == 1 else f"{name}..."


def _row(parameter: Any) -> str:
    meaning = " ".join((parameter.help or "").split())
    if getattr(parameter, "multiple", False) and "repeat" not in meaning:
        meaning += "; may be repeated"
    return f"| `{_cell(_name(parameter))}` | {_cell(meaning)} | {_cell(_default(parameter))} |"


def _name(parameter: Any) -> str:
    if not _is_option(parameter):
        return _argument(parameter)
    value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar or parameter.name.upper()}"
    return ", ".join([*parameter.opts, *parameter.secondary_opts]) + value


def _default(parameter: Any) -> str:
    """Return the default if it is a plain value: parsers have sentinel objects for none."""
    default = parameter.default
    if parameter.required:
        return "required"
    if isinstance(default, bool):
        both = default and parameter.secondary_opts
        return f"`{parameter.opts[0]}`" if both else "off"
    return f"`{default}`" if isinstance(default, str | int | float) else "-"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in (text or "").split("\n\n") if part.strip()]


def _example(text: str) -> str:
    head, mark, command = text.partition("Example: ")
    return f"{head}{mark}`{command}`" if mark else text


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
