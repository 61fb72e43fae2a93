"""Formulas in plain text, as MathML: powers, roots, indices and Greek letters."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_GREEK = {
    "gamma": "\N{GREEK SMALL LETTER GAMMA}",
    "lambda": "\N{GREEK SMALL LETTER LAMDA}",
    "Delta": "\N{GREEK CAPITAL LETTER DELTA}",
    "delta": "\N{GREEK SMALL LETTER DELTA}",
    "theta": "\N{GREEK SMALL LETTER THETA}",
    "phi": "\N{GREEK SMALL LETTER PHI}",
    "Omega": "\N{GREEK CAPITAL LETTER OMEGA}",
}
_SIGNS = {">=": "≥", "<=": "≤", "+-": "±", "->": "→"}
_NAME = r"(?:\d+|log|[A-Za-z]|" + "|".join(_GREEK) + r")"  # what can carry a power or an index
_INDEX = r"(?:[A-Za-z]{1,3}|\d+)"
_POWER = r"(?:\([^()]*\)|-?\d+|[A-Za-z])"
_GROUP = r"\([^()]*(?:\([^()]*\)[^()]*)*\)"
_FORMULA = re.compile(
    rf"\bsqrt(?P<root>{_GROUP})"
    rf"|(?P<base>\b{_NAME}|{_GROUP}|\|[^|]*\|)\^(?P<power>{_POWER})"
    rf"|\b(?P<letter>{_NAME})_(?P<index>{_INDEX})\b"
    rf"|\b(?P<greek>{'|'.join(_GREEK)})(?P<prime>'?)(?![\w-])"
    rf"|(?P<sign>{'|'.join(map(re.escape, _SIGNS))})"
)


def formulas(text: str) -> Markup:
    """Return text as HTML in which n^(1/2), sqrt(N / n), x_j and gamma are formulas; everything else is escaped."""
    parts, place = [], 0
    for match in _FORMULA.finditer(text):
        parts += [escape(text[place : match.start()]), _formula(match)]
        place = match.end()
    return Markup("").join([*parts, escape(text[place:])])


def _formula(match: re.Match[str]) -> Markup:
    if match["sign"]:
        return Markup(_SIGNS[match["sign"]])
    if match["root"]:
        inner = Markup("<msqrt>{}</msqrt>").format(_row(match["root"][1:-1]))
    elif match["power"]:
        power = match["power"].removeprefix("(").removesuffix(")")
        inner = Markup("<msup>{}{}</msup>").format(_row(match["base"]), _row(power))
    elif match["letter"]:
        inner = Markup("<msub>{}{}</msub>").format(_row(match["letter"]), _row(match["index"]))
    else:
        inner = _row(match["greek"] + match["prime"])
    return Markup("<math>{}</math>").format(inner)


def _row(text: str) -> Markup:
    """Return one element for a short formula without powers: numbers, letters and operators."""
    atoms = re.findall(r"\d+(?:\.\d+)?|[A-Za-z]+'?|\S", text)
    return Markup("<mrow>{}</mrow>").format(Markup("").join(map(_atom, atoms)))


def _atom(atom: str) -> Markup:
    prime = "\N{PRIME}" if atom.endswith("'") else ""
    name = _GREEK.get(atom.removesuffix("'"), atom.removesuffix("'")) + prime
    if atom[0].isdigit():
        return Markup("<mn>{}</mn>").format(atom)
    return Markup("<mi>{}</mi>" if atom[0].isalpha() else "<mo>{}</mo>").format(name.replace("-", "\N{MINUS SIGN}"))
