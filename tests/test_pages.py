"""The pages with examples: each prints what it says, and every picture is there."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
EXAMPLES = (
    "guide.md",
    "revealed.md",
    "generalization.md",
    "smoothness.md",
    "mean-field.md",
    "kernels.md",
    "transformers.md",
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_prints_what_follows_it(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    code, expected = re.findall(r"```(?:python|text)\n(.*?)```", text, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), {})
    assert printed.getvalue() == expected


def test_every_picture_is_there_and_shown() -> None:
    shown = set()
    for page in DOCS.glob("*.md"):
        for name in re.findall(r"!\[[^]]*\]\(([^)]*)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / name).read_bytes().startswith(b"\x89PNG")
            shown.add(name)
    assert shown == {f"images/{path.name}" for path in (DOCS / "images").iterdir()}
