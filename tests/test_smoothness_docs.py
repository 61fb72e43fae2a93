"""The page on smoothness: every bound is on it."""

import re
from pathlib import Path

from wordsway import RandomAttention, lipschitz_bounds

PAGE = Path(__file__).resolve().parents[1] / "docs" / "smoothness.md"


def test_every_bound_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows == [bound.name for bound in lipschitz_bounds(RandomAttention(3), 4, 1.0).all]
