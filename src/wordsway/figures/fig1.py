"""Figure 1: one other word changes the attention of all words, and the answer of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from wordsway.experiments import Parameters, RunConfig, Table, TrialRecord, TrialResult, Verdict
from wordsway.experiments.claims import TOO_FEW
from wordsway.figures import _models as shared
from wordsway.figures import _style as style
from wordsway.models import load

SENTENCES = ("I love her much", "I love her smile")
PROMPT = (
    'Reply with "Yes" if the review that follows is {}, and "No" if it is not. Review: I left before the end, and '
    "would not go back for the second half if the tickets were free."
)
KINDS = ("positive", "negative")
ANSWERS = ("Yes", "No")
_DISTANCE = "total variation"
_APART = 0.1
_PATTERN = '"shows a different attention score pattern over these two sentences" (section 1)'
_ANSWER = "of two prompts that differ in one word, Llama2-7b-chat answers one with No and the other with Yes (Figure 1)"


def trial(parameters: Parameters, seed: int) -> TrialRecord:
    """Measure the attention in the first layer for both sentences, or the answers to both prompts."""
    model = load(parameters["model"])
    if parameters["part"] == "scores":
        return {"scores": [model.attention_scores(sentence) for sentence in SENTENCES]}
    first, second = (PROMPT.format(kind) for kind in KINDS)
    return {"prompts": model.prompt_pair(first, second, ANSWERS, chat=model.chats) if model.causal else None}


def grid(config: RunConfig) -> Iterable[Parameters]:
    for part, model in (("scores", shared.ENCODER), ("prompts", shared.DECODER)):
        yield {"part": part, "model": config.model or model}


def table(results: Sequence[TrialResult]) -> Table:
    """Return one row per sentence and pair of words, one per prompt and answer, and one for their distance."""
    rows: Table = []
    for result in shared.first_trials(results):
        head: dict[str, Any] = {"model": result["model"], "part": result["part"]}
        for sentence, found in zip(SENTENCES, result.record.get("scores", ()), strict=False):
            rows += [{**head, "case": sentence, **cell} for cell in shared.cells(found["words"], found["scores"])]
        if pair := result.record.get("prompts"):
            shares = dict(zip(KINDS, (pair["before"], pair["after"]), strict=True))
            values = [(kind, answer, shares[kind][answer]) for kind in KINDS for answer in ANSWERS]
            values.append((_DISTANCE, "", pair["total_variation"]))
            nowhere = {"row": None, "column": None, "from": ""}
            rows += [{**head, "case": case, **nowhere, "to": answer, "value": value} for case, answer, value in values]
    return rows


def claims(rows: Table) -> list[Verdict]:
    return [*_looks([row for row in rows if row["part"] == "scores"]), *_answers(rows)]


def _looks(cells: Table) -> list[Verdict]:
    """Judge that the words that stay attend more, or less, to the one that was changed; a decoder's do not see it."""
    claim = f"words that stay look at the other word differently, by more than {_APART:.0%}"
    if not cells:
        return [Verdict(claim, TOO_FEW, None)]
    last = max(row["row"] for row in cells)
    first, second = (
        [row["value"] for row in cells if row["case"] == case and row["row"] < last and row["column"] == last]
        for case in SENTENCES
    )
    if not any(first) and not any(second):
        return []
    changes = [abs(after / before - 1) for before, after in zip(first, second, strict=True)]
    measured = f"by {min(changes):.0%} to {max(changes):.0%}"
    return [Verdict(claim, measured, min(changes) > _APART, source=_PATTERN)]


def _answers(rows: Table) -> list[Verdict]:
    shares = {(row["case"], row["to"]): row["value"] for row in rows if row["part"] == "prompts"}
    if not shares:
        return []
    changes = (f"{answer} {shares[KINDS[0], answer]:.3f} to {shares[KINDS[1], answer]:.3f}" for answer in ANSWERS)
    measured = f"{', '.join(changes)}, total variation {shares[_DISTANCE, '']:.3f}"
    answers = [max(ANSWERS, key=lambda answer: shares[kind, answer]) for kind in KINDS]
    flips = answers == ["No", "Yes"]
    claim = "another word in the prompt turns the answer from No to Yes"
    measured += f"; the answers are {' and '.join(answers)}{'' if flips else ': not reproduced with this model'}"
    return [Verdict(claim, measured, flips, source=_ANSWER)]


def plot(rows: Table, figure: style.Figure) -> None:
    scores = [row for row in rows if row["part"] == "scores"]
    answers = [row for row in rows if row["part"] == "prompts" and row["to"]]
    count = 2 * bool(scores) + bool(answers)
    for place, sentence in enumerate(SENTENCES if scores else ()):
        axes = style.panel(figure, count, place, sentence, size=(4.2, 3.6))
        cells = [row for row in scores if row["case"] == sentence]
        shared.draw_cells(figure, axes, cells, max(row["value"] for row in scores))
    if answers:
        axes = style.panel(figure, count, count - 1, "answer to a prompt", size=(4.2, 3.6))
        for number, kind in enumerate(KINDS):
            heights = [row["value"] for row in answers if row["case"] == kind]
            at = [spot + 0.4 * number - 0.2 for spot in range(len(heights))]
            axes.bar(at, heights, width=0.36, color=style.colour(number), label=f"if it is {kind}")
        axes.set_xticks(range(len(ANSWERS)), ANSWERS)
        axes.set_ylabel("probability")
        axes.legend(fontsize=9)


FIGURE = shared.experiment(
    name="fig1",
    title="One other word changes where words look, and what is answered",
    about="Attention of the first layer, averaged over heads and without special tokens, for two sentences that differ "
    "in their last word; and the probabilities of two answers to prompts that differ in one word.",
    trial=trial,
    grid=grid,
    table=table,
    claims=claims,
    plot=plot,
)
