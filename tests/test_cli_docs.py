"""The page on the command line: it knows every command, option and key, and shows what `wordsway maps` prints."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import typer

from wordsway.activations import ACTIVATIONS
from wordsway.cli import app, main, plan
from wordsway.cli.trials import run
from wordsway.maps.catalogue import MAPS

ROOT = Path(__file__).resolve().parents[1]
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


def _help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main([*arguments, "--help"])
    return " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())


def test_every_command_and_option_is_on_the_page() -> None:
    commands = _commands()
    lab = {"reproduce", "figures", "results", "results show", "results export"}
    texts = {"text", "swaps", "hear", "models"}
    assert set(commands) == {"", "measure", "generalize", "lipschitz", "ntk", "robustness", "maps", *texts, *lab}
    assert len(commands["measure"]) > 10
    assert "`wordsway --version`" in PAGE
    for name in set(commands) - {""}:
        section = _section(f"wordsway {name.split()[0]}")
        for option in commands[name]:
            assert re.search(rf"{option}\b", section), f"{option} of {name}"


def test_the_reference_is_what_the_parser_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # it must not depend on a terminal
    made = runpy.run_path(str(ROOT / "tools" / "options.py"))["reference"]()
    stored = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert stored == made, "docs/options.md is not what the commands are: run `python tools/options.py`"
    for name, options in _commands().items():
        (part,) = [one for one in made.split("\n## ") if one.startswith(f"wordsway {name}".strip() + "\n")]
        assert all(re.search(rf"`[^`]*{option}\b", part) for option in options), name


def test_every_command_has_a_runnable_example(capsys: pytest.CaptureFixture[str]) -> None:
    for name in _commands():
        assert "Example: wordsway " in _help(name.split(), capsys)


def test_the_help_and_the_page_name_every_map_activation_and_ceiling(capsys: pytest.CaptureFixture[str]) -> None:
    text = _help(["measure"], capsys)
    assert ", ".join(MAPS).replace(", linear-raf", " or linear-raf") in text
    assert f"{'|'.join(plan.CEILINGS)}" in text
    assert f"{'|'.join(plan.DTYPES)}" in text
    assert ", ".join(ACTIVATIONS) in PAGE
    assert all(f"`{name}`" in PAGE for name in plan.CEILINGS)


def test_the_keys_on_the_page_are_those_of_the_records(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((4, 4)))
    made = plan.resolve(plan.Request("drf", None, None, str(tmp_path / "one.npy")))
    (record,) = next(run(made))
    table = PAGE.split("| key | meaning |")[1].split("\n\n")[0]
    keys = [key for line in table.splitlines()[2:] for key in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert keys == list(record)


def test_the_json_on_the_page_is_json_with_these_keys() -> None:
    shown = [json.loads(line) for line in PAGE.splitlines() if line.startswith('{"map"')]
    made = plan.resolve(plan.Request("rf", 3, 2))
    assert len(shown) == 2
    assert all(list(record) == list(next(run(made))[0]) for record in shown)


@pytest.mark.parametrize("command", ["maps", "figures"])
def test_the_page_shows_what_the_lists_print(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with pytest.raises(SystemExit):
        main([command])
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert f"$ wordsway {command}\n" + "\n".join(printed) in PAGE


@pytest.mark.parametrize(
    "arguments",
    [
        "generalize raf --n 4 --d 6 --samples 6 --loss error --penalty 0",
        "lipschitz --layer 0 --lengths 4",
        "ntk --samples 12 --d 6 --width 6 --depth 2",
        "robustness ntk --samples 12 --d 8 --width 5 --activation tanh --terms",
        "text Love --steps 2",
        "text Love --model smollm2 --on next --steps 2",
        "text Love --mode fast --special",
        "swaps Love --word 0 --top 1 --checks 20",
        "hear --lengths 6 --texts 1 --steps 1 --no-maps",
        "models",
        "figures",
        "maps",
    ],
)
def test_every_key_of_the_json_is_on_the_page(
    arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*arguments.split(), "--json"])
    out, err = capsys.readouterr()
    assert (ended.value.code or 0, err) == (0, "")
    records = [json.loads(line) for line in out.splitlines()]
    assert records
    section = _section(f"wordsway {arguments.split()[0]}")
    assert {name for record in records for name in record if f"`{name}`" not in section} == set()
