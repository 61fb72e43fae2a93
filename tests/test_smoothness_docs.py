"""The page on smoothness: its example prints what it says, its pictures and formulas are there."""

import contextlib
import io
import re
from pathlib import Path

from wordsway import RandomAttention, lipschitz_bounds

PAGE = Path(__file__).resolve().parents[1] / "docs" / "smoothness.md"


def test_the_example_prints_what_follows_it() -> None:
    code, expected = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, PAGE.name, "exec"), {})
    assert printed.getvalue() == expected


def test_its_pictures_are_there() -> None:
    names = re.findall(r"!\[[^]]*\]\(([^)]*)\)", PAGE.read_text(encoding="utf-8"))
    assert names
    for name in names:
        assert (PAGE.parent / name).read_bytes().startswith(b"\x89PNG")


def test_every_bound_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows == [bound.name for bound in lipschitz_bounds(RandomAttention(3), 4, 1.0).all]
