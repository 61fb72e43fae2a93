"""What the page shows: plain values for JSON, from the records of the library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from wordsway.errors import InputError
from wordsway.experiments.texts import Options, study_text
from wordsway.models.heat import pieces
from wordsway.models.model import Model
from wordsway.models.outputs import ROWS, Output, chosen_output, decision_name
from wordsway.models.profile import TextProfile, profile_rounds
from wordsway.models.rewrites import Rewrite, Rewriter
from wordsway.models.words import Text
from wordsway.report.pages import text_page
from wordsway.report.texts import leading, measured_on

TEXT = 5000  # characters of a text: some 1,000 words, a minute of a small encoder
_CHECKS, _TOP = 150, 12  # replacements of a word that are tried and listed: within two seconds for short texts
_SHOWN = 48  # words of a text whose attention is drawn


@dataclass(frozen=True)
class Question:
    """What a request of the page states; `Question.read` checks it.

    Attributes
    ----------
    model, text : str
    other : str or None
        A second text to compare with.
    word, layer, head : int or None
    on : str or None
        What is measured, as for `Model.profile`.
    """

    model: str
    text: str
    other: str | None = None
    word: int | None = None
    layer: int | None = None
    head: int | None = None
    on: str | None = None

    @classmethod
    def read(cls, given: Any) -> Question:
        """Return the question of a JSON object; raises InputError where it is none."""
        kinds = {"model": str, "text": str, "other": str, "on": str, "word": int, "layer": int, "head": int}
        if not isinstance(given, Mapping) or not {"model", "text"} <= set(given) <= set(kinds):
            names = ", ".join(field.name for field in fields(cls))
            raise InputError(f"a request must be an object with model and text, and of {names} only")
        for name, value in given.items():
            wrong = not isinstance(value, kinds[name]) or isinstance(value, bool)
            if wrong and not (value is None and name not in ("model", "text")):
                raise InputError(f"{name} must be of type {kinds[name].__name__}, got {type(value).__name__}")
        for name in ("text", "other"):
            if len(given.get(name) or "") > TEXT:
                raise InputError(f"{name} must have at most {TEXT:,} characters, got {len(given[name]):,}: shorten it")
        return cls(**given)

    def output(self, model: Model) -> Output:
        """What is measured."""
        return chosen_output(model, self.on)


def outputs(model: Model) -> list[str]:
    """Names of the outputs that can be measured on a model, its default first."""
    default = chosen_output(model).name
    return list(dict.fromkeys([default, "pooled", "last"]))


def profiles(model: Model, question: Question) -> Iterator[dict[str, Any]]:
    """Yield what words do, as it gets more precise."""
    text, output = model.read(question.text), question.output(model)
    shown: dict[str, Any] | None = None
    for profile in profile_rounds(model, text, None, output):
        if shown is not None:
            yield shown
        shown = _profile(model, profile)
    if shown is not None:
        yield {**shown, "done": True}


def _profile(model: Model, profile: TextProfile) -> dict[str, Any]:
    typical = any(one.typical is not None for one in profile.words)
    return {
        "model": profile.model,
        "on": profile.on,
        "measured": measured_on(profile.on),
        "outputs": outputs(model),
        "signed": profile.signed,
        "decision": profile.decision,
        "before": profile.before,
        "lead": leading(profile) if typical else "",
        "pieces": _pieces(profile.text),
        "words": profile.rows(),
        "passes": profile.passes,
        "layers": model.layers,
        "done": False,
    }


def _pieces(text: Text) -> list[dict[str, Any]]:
    return [
        {"text": piece.text, "position": word.position, "apart": piece.apart, "special": piece.special}
        for piece, word in zip(pieces(text, {}), text.words, strict=True)
    ]


def swaps(model: Model, question: Question) -> dict[str, Any]:
    """The replacements of a word that move the model most, and the texts that they make."""
    if question.word is None:
        raise InputError("word must be a position, got none")
    read = model.read(question.text)
    found = model.swaps(read, question.word, top=_TOP, checks=_CHECKS, on=question.output(model))
    rows = [{**row, "text": swap.text} for row, swap in zip(found.rows(), found.swaps, strict=True)]
    head = {"signed": found.signed, "before": found.before, "declared": found.declared}
    return {**head, "candidates": found.candidates, "checked": found.checked, "swaps": rows}


def comparison(model: Model, question: Question) -> dict[str, Any]:
    """What a model predicts for two texts, and how it attends in both."""
    if question.other is None:
        raise InputError("other must be a text to compare with, got none")
    output = question.output(model)
    first, second = (_side(model, text, output, question) for text in (question.text, question.other))
    return {"first": first, "second": second, "signed": output.signed, "layers": model.layers}


def _side(model: Model, text: str, output: Output, question: Question) -> dict[str, Any]:
    rewriter = Rewriter(model, model.read(text), output)
    before = rewriter.before
    side: dict[str, Any] = {
        "text": text,
        "decision": decision_name(model, output, output.decisions(before[None])[0]) if output.decides else None,
        "before": float(output.score(before, before)) if output.predicts else None,
    }
    scores = model.attention_scores(text, question.layer or 0)
    heads = len(scores.scores)
    if question.head is not None:
        if not 0 <= question.head < heads:
            raise InputError(f"head must be 0..{heads - 1}, got {question.head}")
        scores = replace(scores, scores=scores.scores[question.head][None])
    words, matrix = scores.mean()
    rows = [[round(value, 4) for value in row[:_SHOWN]] for row in matrix[:_SHOWN].tolist()]
    return {**side, "heads": heads, "words": words[:_SHOWN], "left_out": max(0, len(words) - _SHOWN), "scores": rows}


def layers(model: Model, question: Question) -> Iterator[dict[str, Any]]:
    """Yield for each layer how far masking each word moves its hidden state, relative to its norm."""
    text, mask = model.read(question.text), model.texts.mask or ""
    rewrites = [Rewrite(word, mask) for word in text.scored]
    if not mask and len(rewrites) == 1:
        raise InputError("a model without a mask needs a text of at least two words, got one")
    for layer in range(model.layers):
        output = chosen_output(model, layer)
        assert output.kind == ROWS
        values = Rewriter(model, text, output).effects(rewrites).values
        words = [word.text for word in text.scored]
        yield {"layer": layer, "words": words, "values": torch.nan_to_num(values).tolist(), "of": model.layers}


def saved_page(model: Model, question: Question) -> str:
    """The page about the text that needs no server, as ``wordsway text --html`` writes it."""
    options = Options(on=question.on).checked(model)
    return text_page(study_text(model, question.text, options), options)
