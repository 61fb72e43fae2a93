"""Figure 1: one other word changes where all words look, and what a model answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wordsway.experiments.claims import TOO_FEW
from wordsway.experiments.experiment import Experiment, Parameters, RunConfig, Table, TrialResult, Verdict
from wordsway.figures import _models as shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCES = ("I love her much", "I love her smile")
PROMPT = (
    'Reply with "Yes" if the review that follows is {}, and "No" if it is not. Review: I left before the end, and '
    "would not go back for the second half if the tickets were free."
)
KINDS = ("positive", "negative")
ANSWERS = ("Yes", "No")
_DISTANCE = "total variation"
_APART = 0.1


def trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Attention averaged over the heads of the first layer, for both sentences; or the answers to both prompts."""
    from wordsway.models import load

    model = load(parameters["model"])
    if parameters["part"] == "prompts":
        if not model.causal:
            return {"part": "none"}
        first, second = (PROMPT.format(kind) for kind in KINDS)
        found = model.prompt_pair(first, second, ANSWERS, chat=model.chats)
        record: dict[str, Any] = {
            "part": "prompts",
            "total_variation": found.total_variation,
            "divergence": found.divergence,
        }
        for kind, row in zip(KINDS, found.probabilities, strict=True):
            record |= {f"{kind} {answer}": share for answer, share in zip(found.answers, row, strict=True)}
        return record
    record = {"part": "scores"}
    for number, sentence in enumerate(SENTENCES):
        record |= shared.flat(str(number), *model.attention_scores(sentence).mean())
    return record


def grid(config: RunConfig) -> Iterable[Parameters]:
    for part, model in (("scores", shared.ENCODER), ("prompts", shared.DECODER)):
        yield {"part": part, "model": config.model or model}


def table(finished: Sequence[TrialResult]) -> Table:
    """One row for each sentence and pair of words, one for each prompt and answer, and one for their distance."""
    rows: Table = []
    for one in finished:
        if one.record["part"] == "scores":
            for number, sentence in enumerate(SENTENCES):
                head = {"model": one["model"], "part": "scores", "case": sentence}
                rows += [{**head, **cell} for cell in shared.cells(str(number), one.record)]
        elif one.record["part"] == "prompts":
            head = {"model": one["model"], "part": "prompts"}
            nothing = {"row": None, "column": None, "from": ""}
            for kind in KINDS:
                for answer in ANSWERS:
                    value = one.record[f"{kind} {answer}"]
                    rows.append({**head, "case": kind, **nothing, "to": answer, "value": value})
            rows.append({**head, "case": _DISTANCE, **nothing, "to": "", "value": one.record["total_variation"]})
    return rows


def claims(rows: Table) -> list[Verdict]:
    return [*_looks([row for row in rows if row["part"] == "scores"]), *_answers(rows)]


def _looks(cells: Table) -> list[Verdict]:
    """That the words that stay look at the one that was changed more, or less; those of a decoder do not see it."""
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
    return [Verdict(claim, f"by {min(changes):.0%} to {max(changes):.0%}", min(changes) > _APART)]


def _answers(rows: Table) -> list[Verdict]:
    found = {(row["case"], row["to"]): row["value"] for row in rows if row["part"] == "prompts"}
    if not found:
        return []
    told = ", ".join(f"{one} {found[KINDS[0], one]:.3f} to {found[KINDS[1], one]:.3f}" for one in ANSWERS)
    moved = found[_DISTANCE, ""]
    claim = "another word in the prompt moves the distribution of the answer"
    return [Verdict(claim, f"{told}, total variation {moved:.3f}", moved > 0)]


def plot(rows: Table, figure: Figure) -> None:
    from wordsway.figures import _style as style

    scores = [row for row in rows if row["part"] == "scores"]
    answers = [row for row in rows if row["part"] == "prompts" and row["to"]]
    count = 2 * bool(scores) + bool(answers)
    for place, sentence in enumerate(SENTENCES if scores else ()):
        axes = style.panel(figure, count, place, sentence, size=(4.2, 3.6))
        cells = [row for row in scores if row["case"] == sentence]
        shared.picture(figure, axes, cells, max(row["value"] for row in scores))
    if answers:
        axes = style.panel(figure, count, count - 1, "answer to a prompt", size=(4.2, 3.6))
        for number, kind in enumerate(KINDS):
            heights = [row["value"] for row in answers if row["case"] == kind]
            at = [spot + 0.4 * number - 0.2 for spot in range(len(heights))]
            axes.bar(at, heights, width=0.36, color=style.colour(number), label=f"if it is {kind}")
        axes.set_xticks(range(len(ANSWERS)), ANSWERS)
        axes.set_ylabel("probability")
        axes.legend(fontsize=9)


FIGURE = Experiment(
    name="fig1",
    title="One other word changes where words look, and what is answered",
    about="Attention of the first layer, averaged over heads and without special tokens, for two sentences that differ "
    "in their last word; and the probabilities of two answers to prompts that differ in one word.",
    trial=trial,
    grid=grid,
    trials={"quick": 1, "paper": 1},
    table=table,
    claims=claims,
    plot=plot,
    estimate=shared.estimate,
)
