"""The public list: what it says, what the type checker sees and what is loaded are the same."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import wordsway

SOURCE = Path(str(wordsway.__file__)).read_text(encoding="utf-8")


def _names_for_type_checkers() -> dict[str, str]:
    """Each name imported under TYPE_CHECKING, with the module it comes from."""
    (block,) = (node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    assert isinstance(block.test, ast.Name)
    assert block.test.id == "TYPE_CHECKING"
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(block.body)
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


def test_the_list_the_table_and_the_types_agree() -> None:
    assert set(wordsway.__all__) == set(wordsway._ROOM_OF)
    assert _names_for_type_checkers() == {name: f"wordsway.{room}" for name, room in wordsway._ROOM_OF.items()}
    assert len(wordsway._ROOM_OF) == sum(len(names) for names in wordsway._ROOMS.values())  # no name in two rooms


def test_the_list_is_short_sorted_and_without_repetition() -> None:
    assert len(wordsway.__all__) < 60
    assert len(set(wordsway.__all__)) == len(wordsway.__all__)
    assert wordsway.__all__ == sorted(wordsway.__all__)


@pytest.mark.parametrize("name", wordsway.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    value = getattr(wordsway, name)
    assert value is not None
    assert getattr(wordsway, name) is value
    room = sys.modules[f"wordsway.{wordsway._ROOM_OF[name]}"]
    assert getattr(room, name) is value
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
    assert "__version__" in dir(wordsway)
    with pytest.raises(AttributeError, match="module 'wordsway' has no attribute 'word_sensitivities'"):
        wordsway.word_sensitivities  # noqa: B018


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
