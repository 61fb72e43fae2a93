"""The public list: what it says, what the type checker sees and what is loaded are the same."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import wordsway

STUB = Path(str(wordsway.__file__)).with_suffix(".pyi").read_text(encoding="utf-8")


def _packages() -> dict[str, str]:
    """Each public name with the package that it comes from, as type checkers read it."""
    imports = [node for node in ast.parse(STUB).body if isinstance(node, ast.ImportFrom)]
    assert all(alias.name == alias.asname for node in imports for alias in node.names)  # re-exported
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_the_list_is_short_and_without_repetition() -> None:
    assert len(wordsway.__all__) < 65
    assert len(set(wordsway.__all__)) == len(wordsway.__all__)
    assert set(wordsway.__all__) == set(_packages())


@pytest.mark.parametrize("name", wordsway.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    value = getattr(wordsway, name)
    assert value is not None
    assert getattr(wordsway, name) is value
    assert getattr(sys.modules[f"wordsway.{_packages()[name]}"], name) is value
    assert value.__doc__ or name == "ACTIVATIONS"  # a mapping


def test_the_names_that_users_rely_on_are_there() -> None:
    design = (
        *("normalize", "gaussian_context", "review_contexts", "RandomFeatures", "DeepRandomFeatures"),
        *("RandomAttention", "Attention", "respond", "word_sensitivity", "sensitivity_profile"),
        *("vocabulary_sensitivity", "Sensitivity"),
    )
    assert set(design) <= set(wordsway.__all__)


def test_names_are_listed_and_unknown_ones_refused() -> None:
    assert set(wordsway.__all__) <= set(dir(wordsway))
    with pytest.raises(AttributeError, match="No wordsway attribute word_sensitivities"):
        _ = wordsway.word_sensitivities  # type: ignore[attr-defined]


def _loaded_after(program: str) -> set[str]:
    program += "; import sys; print(*sys.modules)"
    return set(subprocess.check_output([sys.executable, "-c", program], text=True).split())


def test_the_package_alone_loads_nothing_heavy() -> None:
    loaded = _loaded_after("import wordsway; wordsway.__version__; dir(wordsway)")
    assert not {"torch", "numpy", "scipy", "transformers", "matplotlib", "rich", "typer"} & loaded
    assert {name for name in loaded if name.startswith("wordsway")} == {"wordsway"}


def test_a_star_import_brings_every_name() -> None:
    program = "from wordsway import *; import wordsway; print(set(wordsway.__all__) <= set(globals()))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "True\n"
