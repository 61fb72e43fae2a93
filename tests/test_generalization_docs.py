"""The page on generalization: its example prints what it says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "generalization.md"


def test_the_example_prints_what_follows_it() -> None:
    code, expected = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, PAGE.name, "exec"), {})
    assert printed.getvalue() == expected


def test_its_pictures_are_there() -> None:
    for name in re.findall(r"!\[[^]]*\]\(([^)]*)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / name).read_bytes().startswith(b"\x89PNG")
