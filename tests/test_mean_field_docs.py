"""The page on mean-field attention: its example prints what it says, its picture is there, its numbers are right."""

import contextlib
import io
import math
import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).resolve().parents[1] / "docs" / "mean-field.md"


def test_the_example_prints_what_follows_it() -> None:
    code, expected = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, PAGE.name, "exec"), {})
    assert printed.getvalue() == expected


def test_its_pictures_are_there() -> None:
    names = re.findall(r"!\[[^]]*\]\(([^)]*)\)", PAGE.read_text(encoding="utf-8"))
    assert names == ["images/meanfield.png"]
    for name in names:
        assert (PAGE.parent / name).read_bytes().startswith(b"\x89PNG")


def test_means_over_the_past_have_the_norms_it_tells() -> None:
    norms = []
    for n in (2, 2000):
        means = torch.ones(n, n, dtype=torch.float64).tril() / torch.arange(1, n + 1)[:, None]
        norms.append(float(torch.linalg.matrix_norm(means, ord=2)))
    assert norms[0] == pytest.approx(1.14, abs=0.005)
    assert 1.7 < norms[1] < 2


@pytest.mark.parametrize("g", [0.1, 1.0, 8.0])
def test_its_formula_of_two_points_is_that_of_the_library(g: float) -> None:
    from wordsway.smoothness.field import two_point
    from wordsway.smoothness.heads import Direction

    t = (math.sqrt(9 * g**2 + 4 * (1 + g)) - 3 * g) / 2
    direction = Direction(torch.tensor([1.0, 0.0], dtype=torch.float64), -g / 2, g / 2, "opposite")
    told = math.exp(g / 2) * math.sqrt(t) * (1 + t + g) / (1 + t) ** 2
    assert two_point([direction], torch.eye(2, dtype=torch.float64), 1.0) == pytest.approx(told, rel=1e-12)
