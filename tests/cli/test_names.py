"""One name for one thing: the options of a command are the parameters of the function behind it."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import typer

import wordsway as ws
from wordsway.cli import app
from wordsway.experiments.auditing import audit
from wordsway.models.length import length_curve
from wordsway.sensitivity import word_sensitivity

# The function behind a command, and the other functions that its options are about.
FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "text": (ws.Model.profile, ws.load),
    "swaps": (ws.Model.swaps, ws.load),
    "flips": (ws.Model.flips, ws.load),
    "length": (length_curve, ws.load),
    "audit": (audit, ws.load),
    "measure": (word_sensitivity, ws.load, ws.Model.features),
}
# An option that may be repeated is in the singular, and its parameter takes them all, in the plural.
PLURALS = {"answer": "answers", "word": "words"}
# What one side has alone. A command reads and writes files, and prints; a function has and returns objects.
FILES = {"input", "column", "json", "html", "out", "export"}
OBJECTS = {"self", "progress"}  # the command shows progress where stderr is a terminal
MODELS = {"model", "name"}  # what `load` calls a name is the model of all other functions
EXCEPTIONS: dict[str, tuple[set[str], set[str]]] = {
    "text": ({"layers"}, set()),  # a second measurement, `Model.layer_profile`, on the page
    "swaps": (set(), set()),
    "flips": (set(), set()),
    "length": ({"maps"}, set()),  # a second measurement, `map_curves`, next to it
    # The file is the texts, and its column the labels; processes and clusters are executors; `--out` holds the store.
    "audit": ({"file", "fail_above", "dask"}, {"texts", "labels", "executor", "store"}),
    # The command makes the map and its contexts itself, from these; a function is given phi and X.
    "measure": (
        {"map_name", "n", "d", "data", "trials", "activation", "depth", "width"},
        {"phi", "X", "together", "budget"},
    ),
}


def _parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


@pytest.mark.parametrize("command", FUNCTIONS)
def test_an_option_and_its_parameter_have_one_name(command: str) -> None:
    group: Any = typer.main.get_command(app)
    main, *others = FUNCTIONS[command]
    repeated = {parameter.opts[0] for parameter in group.commands[command].params if parameter.multiple}
    names = [name for parameter in group.commands[command].params for name in parameter.opts]
    options = {name.lstrip("-").replace("-", "_") for name in names}
    options = {PLURALS[one] if f"--{one}" in repeated and one in PLURALS else one for one in options}
    own, known = _parameters(main), set().union(*map(_parameters, others))
    alone, missing = EXCEPTIONS[command]
    assert options - own - known - FILES - MODELS == alone
    assert own - options - OBJECTS - MODELS == missing
