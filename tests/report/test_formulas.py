"""Formulas in plain text, as MathML."""

import re

import pytest

from wordsway.report.formulas import formulas

GAMMA, LAMBDA, MINUS = "\N{GREEK SMALL LETTER GAMMA}", "\N{GREEK SMALL LETTER LAMDA}", "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("text", "tags", "shown"),
    [
        ("S falls like n^(-1/2)", ["msup"], f"S falls like n{MINUS}1/2"),
        ("(2 - gamma)^2 in all", ["msup"], f"(2{MINUS}{GAMMA})2 in all"),
        ("|f - y|^2 / 2", ["msup"], f"|f{MINUS}y|2 / 2"),
        ("1 + (2L/n)^(1/2)", ["msup"], "1 + (2L/n)1/2"),
        ("d / log^4 d", ["msup"], "d / log4 d"),
        ("k sqrt(N / d)", ["msqrt"], "k N/d"),
        ("exp(-lambda_min t / 2)", ["msub"], f"exp(-{LAMBDA}min t / 2)"),
        ("gamma >= 1, 0.5 +- 0.1", [], f"{GAMMA} \N{GREATER-THAN OR EQUAL TO} 1, 0.5 \N{PLUS-MINUS SIGN} 0.1"),
        ("E phi' is not 0", [], "E \N{GREEK SMALL LETTER PHI}\N{PRIME} is not 0"),
        (
            "relu-raf, a_long_name, gammas, snake_case",
            [],
            "relu-raf, a_long_name, gammas, snake_case",
        ),
        ("<b>&x^2", ["msup"], "&lt;b&gt;&amp;x2"),
    ],
)
def test_text_with_formulas_is_html(text: str, tags: list[str], shown: str) -> None:
    html = str(formulas(text))
    assert re.findall(r"<(msup|msub|msqrt)>", html) == tags
    assert re.sub(r"</?m\w+>", "", html) == shown
