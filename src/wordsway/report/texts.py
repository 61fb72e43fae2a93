"""Words for what was measured on a text."""

from __future__ import annotations

_ON = {
    "last": "the last hidden state of all tokens",
    "pooled": "the mean of the last hidden state, of length 1",
    "next": "the distribution of the next token",
    "class": "the distribution over the classes",
}


def measured_on(on: str) -> str:
    """Describe the output that a change is measured on: "last, the last hidden state of all tokens"."""
    return f"{on}, {_ON[on]}" if on in _ON else f"{on}, its hidden state of all tokens"


def change_kind(on: str) -> str:
    """Describe how a change is measured."""
    return "total variation of the distributions" if on in ("next", "class") else "relative change"
