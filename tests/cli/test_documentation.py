"""The page on the command line has every command and key of JSON, and shows what commands print."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import typer

from cli.conftest import Run
from wordsway.activations import ACTIVATIONS
from wordsway.cli import app
from wordsway.cli.measure import CEILINGS, DTYPES
from wordsway.maps.catalogue import MAPS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


def _section(title: str) -> str:
    (found,) = [part for part in PAGE.split("\n## ") if part.startswith(f"{title}\n")]
    return found


def _commands() -> dict[str, list[str]]:
    """The commands with their options, as the parser has them."""
    group = typer.main.get_command(app)
    commands = {"": group, **group.commands}  # type: ignore[attr-defined]
    commands |= {f"results {name}": command for name, command in commands["results"].commands.items()}
    return {
        name: [option for parameter in command.params for option in parameter.opts if option.startswith("-")]
        for name, command in commands.items()
    }


def _help(run: Run, *arguments: str) -> str:
    return " ".join(re.sub("[│╭╮╰╯─]", " ", run(*arguments, "--help").out).split())


def test_every_command_has_a_section_and_a_runnable_example(run: Run) -> None:
    for name in _commands():
        text = _help(run, *name.split())
        assert "Example: wordsway " in text
        assert not re.search(r"<\w+|\[\[", text), "the help shows types of Python"
        if name:
            assert f"wordsway {name}" in _section(f"wordsway {name.split()[0]}").replace("[show]", "show")
    assert "`wordsway --version`" in PAGE


def test_the_reference_is_what_the_parser_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # it must not depend on a terminal
    made = runpy.run_path(str(ROOT / "tools" / "options.py"))["reference"]()
    stored = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert stored == made, "docs/options.md is not what the commands are: run `python tools/options.py`"
    for name, options in _commands().items():
        (part,) = [part for part in made.split("\n## ") if part.startswith(f"wordsway {name}".strip() + "\n")]
        assert all(re.search(rf"`[^`]*{option}\b", part) for option in options), name


def test_the_lists_are_those_of_the_maps_and_figures() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "lists.py"))
    stored = tool["PATH"].read_text(encoding="utf-8")
    assert stored == tool["content"](), "the lists are not what maps and figures are: run `python tools/lists.py`"


def test_every_option_on_the_page_exists() -> None:
    for section in PAGE.split("\n## wordsway ")[1:]:
        name = section.split("\n")[0]
        known = {option for command, options in _commands().items() if command.startswith(name) for option in options}
        known |= {"--help", "--no-maps", "--version", *_commands()["measure"]}
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", section)) <= known, name


def test_the_help_and_the_page_name_every_map_activation_and_ceiling(run: Run) -> None:
    text = _help(run, "measure")
    assert ", ".join(MAPS).replace(", linear-raf", " or linear-raf") in text
    assert "|".join(CEILINGS) in text
    assert "|".join(DTYPES) in text
    assert ", ".join(ACTIVATIONS) in " ".join(PAGE.split())
    assert all(f"`{name}`" in PAGE for name in CEILINGS)


def test_the_keys_of_measure_are_those_on_the_page(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((4, 4)))
    (row,) = run("measure", "drf", "--data", tmp_path / "one.npy", "--json").rows
    table = PAGE.split("| key | meaning |")[1].split("\n\n")[0]
    keys = [key for line in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", line.split("|")[1])]
    of_texts = list(run("measure", "--text", "hi", "--json").rows[0])
    assert keys == [*row, *(key for key in of_texts if key not in row)]


@pytest.mark.parametrize("command", ["maps", "figures", "models"])
def test_the_page_shows_what_the_lists_print(
    run: Run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDSWAY_CACHE", str(tmp_path))  # without what is downloaded on request
    printed = [line.rstrip() for line in run(command).out.splitlines()]
    assert f"$ wordsway {command}\n" + "\n".join(printed) in PAGE


@pytest.mark.parametrize(
    "arguments",
    [
        "generalize raf --n 4 --d 6 --samples 6 --loss error --penalty 0",
        "lipschitz --layer 0 --lengths 4",
        "ntk --samples 12 --d 6 --width 6 --depth 2",
        "robustness ntk --samples 12 --d 8 --width 5 --activation tanh --terms",
        "text Love",
        "text Love --ball --steps 2",
        "text Love --model smollm2 --ball --steps 2",
        "text Love --ball --mode fast --special",
        "swaps Love --word 0 --top 1 --checks 20",
        "flips Love! --model smollm2 --candidates delete",
        "length --lengths 6 --texts 1 --draws 1 --no-maps",
        "models",
        "figures",
        "maps",
    ],
)
def test_every_key_of_the_json_is_on_the_page(
    run: Run, arguments: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = run(*arguments.split(), "--json").rows
    assert rows
    section = _section(f"wordsway {arguments.split()[0]}")
    assert {name for row in rows for name in row if f"`{name}`" not in section} == set()
