"""The record of an audit: every text of a data set with its verdict, and shares of all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from wordsway.experiments.intervals import DIFFERENCE_INTERVAL, SHARE_INTERVAL, PairedDifference, Share
from wordsway.models.flips import FLIPS, NOT_FOUND, SAFE
from wordsway.records import Record, cell, html_column, html_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOT_MEASURED = "not measured"
_COMMON = 20  # words and replacements that are listed
_EXTREME = 5  # texts that are the least and the most robust


@dataclass(frozen=True)
class AuditedText:
    """A text of a data set and what was measured on it.

    Attributes
    ----------
    number : int
        Its place in the data set, from 0.
    line : int
        Where it is in its file, from 1.
    text : str
    label : str or None
        The class that it has according to the data set, by the model's name.
    measured : mapping or None
        The verdict, and the profile of each word in `words`; None where it could not be measured.
    reason : str or None
        Why it could not be measured.
    retry : bool
        Whether it failed for a reason that may be gone the next time, such as a worker process that was killed.
    """

    number: int
    line: int
    text: str
    label: str | None
    measured: Mapping[str, Any] | None
    reason: str | None = None
    retry: bool = False

    @property
    def verdict(self) -> str:
        return NOT_MEASURED if self.measured is None else str(self.measured["verdict"])

    @property
    def correct(self) -> bool | None:
        """Whether the prediction is the label; None where there is no label or no prediction."""
        if self.measured is None or self.label is None:
            return None
        return bool(_same(str(self.measured["prediction"]), self.label))

    @property
    def top(self) -> Mapping[str, Any] | None:
        """The profile of the word with the largest typical effect."""
        words = [] if self.measured is None else [one for one in self.measured["words"] if one["leads"]]
        return max(words, key=lambda one: float(one["typical"]), default=None)

    def row(self) -> dict[str, Any]:
        """Plain values, the same keys for every text."""
        measured, top = self.measured or {}, self.top or {}
        return {
            "number": self.number,
            "line": self.line,
            "text": self.text,
            "label": self.label,
            "prediction": measured.get("prediction"),
            "correct": self.correct,
            "before": measured.get("before"),
            "verdict": self.verdict,
            "flip": None if self.measured is None else self.verdict == FLIPS,
            "word": measured.get("word"),
            "position": measured.get("position"),
            "replacement": measured.get("replacement"),
            "after": measured.get("after"),
            "becomes": measured.get("becomes"),
            "tried": measured.get("tried"),
            "candidates": measured.get("total"),
            "flipping": measured.get("flipping"),
            "top_word": top.get("word"),
            "top_position": top.get("position"),
            "masked": top.get("masked"),
            "typical": top.get("typical"),
            "typical_se": top.get("typical_se"),
            "worst": top.get("worst"),
            "worst_replacement": top.get("replacement"),
            "passes": measured.get("passes"),
            "reason": self.reason,
        }


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Record):
    """How many decisions of a model on a data set hold when one word is replaced.

    Attributes
    ----------
    model : str
    source : str
        The file or folder of the texts.
    on : str
        The prediction.
    candidates : str
        The declared set of replacements, over which texts flip or are safe.
    budget : int or None
        Candidates that were tried per text; None: all of them, or until one flips.
    seed : int
    texts : tuple of AuditedText
    notes : tuple of str
        What was guessed about the file.
    against : Audit or None
        Another model on the same texts.
    """

    summary_fields = ("model", "candidates", "measured", "accuracy", "robust", "flip_share")

    model: str
    source: str
    on: str
    candidates: str
    budget: int | None
    seed: int
    texts: tuple[AuditedText, ...]
    notes: tuple[str, ...] = ()
    against: Audit | None = None

    # Shares

    @property
    def measured(self) -> int:
        """Texts that were measured."""
        return sum(one.measured is not None for one in self.texts)

    @property
    def labelled(self) -> bool:
        """Whether measured texts have labels."""
        return any(one.correct is not None for one in self.texts)

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of texts of each verdict."""
        counts = Counter(one.verdict for one in self.texts)
        return {verdict: counts[verdict] for verdict in (FLIPS, SAFE, NOT_FOUND, NOT_MEASURED)}

    @property
    def accuracy_share(self) -> Share:
        """The share of labelled texts whose prediction is the label."""
        correct = [one.correct for one in self.texts if one.correct is not None]
        return Share(sum(correct), len(correct))

    @property
    def robust_share(self) -> Share:
        """The share of texts that are predicted correctly and proved safe over the candidates.

        Texts without labels count as correct where no text has one. Those where no flip was found, although not every
        candidate was tried, are left open: the upper end of the interval counts them.
        """
        counted = [one for one in self.texts if one.measured is not None and (one.label or not self.labelled)]
        kept = [one.verdict for one in counted if one.correct is not False]
        return Share(kept.count(SAFE), len(counted), kept.count(NOT_FOUND))

    @property
    def flips(self) -> Share:
        """The share of measured texts whose decision some candidate flips."""
        counts = self.verdicts
        return Share(counts[FLIPS], self.measured, counts[NOT_FOUND])

    @property
    def accuracy(self) -> float | None:
        return self.accuracy_share.value

    @property
    def robust(self) -> float | None:
        return self.robust_share.value

    @property
    def flip_share(self) -> float | None:
        return self.flips.value

    @property
    def passes(self) -> int:
        """Texts that the model evaluated."""
        return sum(one.measured["passes"] for one in self.texts if one.measured is not None)

    def differences(self) -> dict[str, PairedDifference]:
        """How far the shares of this model are above those of the other one, on the texts that both measured."""
        if self.against is None:
            return {}
        both = [
            pair for pair in zip(self.texts, self.against.texts, strict=True) if pair[0].measured and pair[1].measured
        ]
        labelled = [pair for pair in both if pair[0].label is not None and pair[1].label is not None]
        proved: Callable[[AuditedText], bool] = lambda one: one.verdict == SAFE and one.correct is not False  # noqa: E731
        differences = {
            "robust": _paired(labelled if self.labelled else both, proved),
            "flips": _paired(both, lambda one: one.verdict == FLIPS),
        }
        return (
            {"accuracy": _paired(labelled, lambda one: bool(one.correct)), **differences} if labelled else differences
        )

    # What decides

    def deciding_words(self) -> list[dict[str, Any]]:
        """The words that most often have the largest typical effect in a text, with how often and an example."""
        tops = [(one, one.top) for one in self.texts]
        texts: dict[str, list[tuple[AuditedText, float]]] = defaultdict(list)
        for one, top in tops:
            if top is not None:
                texts[top["word"].casefold()].append((one, top["typical"]))
        rows: list[dict[str, Any]] = [
            {
                "word": word,
                "texts": len(found),
                "typical": sum(effect for _, effect in found) / len(found),
                "flips": sum(one.verdict == FLIPS for one, _ in found),
                "example": max(found, key=lambda pair: pair[1])[0].number,
            }
            for word, found in texts.items()
        ]
        return sorted(rows, key=lambda row: (-row["texts"], -row["typical"], row["word"]))[:_COMMON]

    def flipping_replacements(self) -> list[dict[str, Any]]:
        """The replacements that most often flip a text, with the words that they replaced and an example.

        A text counts once, with the flip that was found first.
        """
        texts: dict[str, list[AuditedText]] = defaultdict(list)
        for one in self.texts:
            if one.measured is not None and one.verdict == FLIPS:
                texts[str(one.measured["replacement"]).casefold()].append(one)
        rows: list[dict[str, Any]] = []
        for replacement, found in texts.items():
            words = Counter(one.measured["word"].casefold() for one in found if one.measured)
            replaced = [word for word, _ in sorted(words.items(), key=lambda pair: (-pair[1], pair[0]))]
            example = min(found, key=lambda one: one.measured["after"] if one.measured else 1.0)
            rows.append(
                {
                    "replacement": replacement or "(deleted)",
                    "texts": len(found),
                    "replaces": ", ".join(replaced[:5]) + (", ..." if len(replaced) > 5 else ""),
                    "example": example.number,
                }
            )
        return sorted(rows, key=lambda row: (-row["texts"], row["replacement"]))[:_COMMON]

    def least_robust(self) -> list[AuditedText]:
        """The texts whose decision has the smallest probability left after the flip that was found."""
        return sorted(self._of(FLIPS), key=_left)[:_EXTREME]

    def most_robust(self) -> list[AuditedText]:
        """The safe texts whose decision keeps the largest probability under their most adverse candidate."""
        return sorted(self._of(SAFE), key=lambda one: -_left(one))[:_EXTREME]

    def _of(self, verdict: str) -> list[AuditedText]:
        return [one for one in self.texts if one.verdict == verdict]

    # Views

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one dictionary per text; where two models are compared, those of the other one too."""
        rows = [one.row() for one in self.texts]
        if self.against is None:
            return rows
        names = ("prediction", "correct", "before", "verdict", "word", "replacement", "after", "becomes", "reason")
        return [
            {**row, **{f"against_{name}": other[name] for name in names}}
            for row, other in zip(rows, self.against.rows(), strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the shares and counts; the texts are in `rows`."""
        plain = {
            "model": self.model,
            "source": self.source,
            "on": self.on,
            "candidates": self.candidates,
            "budget": self.budget,
            "seed": self.seed,
            "texts": len(self.texts),
            "measured": self.measured,
            "accuracy": self.accuracy_share.to_dict() if self.labelled else None,
            "robust_accuracy" if self.labelled else "robust": self.robust_share.to_dict(),
            "flips": self.flips.to_dict(),
            "verdicts": self.verdicts,
            "passes": self.passes,
            "interval": SHARE_INTERVAL,
            "deciding_words": self.deciding_words(),
            "flipping_replacements": self.flipping_replacements(),
            "notes": list(self.notes),
        }
        if self.against is not None:
            plain["against"] = self.against.to_dict()
            plain["differences"] = {name: one.to_dict() for name, one in self.differences().items()}
            plain["difference_interval"] = DIFFERENCE_INTERVAL
        return plain

    def shares(self) -> dict[str, Share]:
        """The shares by their names."""
        robust = "one-word robust accuracy" if self.labelled else "one-word robust"
        accuracy = {"accuracy": self.accuracy_share} if self.labelled else {}
        return {**accuracy, robust: self.robust_share, "flips": self.flips}

    def headlines(self) -> dict[str, str]:
        """The shares with their intervals, as text."""
        return {name: share_text(share) for name, share in self.shares().items()}

    def draw(self, ax: Axes) -> None:
        """Draw the number of texts of each verdict, correct and wrong predictions apart where there are labels."""
        names = list(self.verdicts)
        groups = {"correct": True, "wrong": False, "no label": None}
        left = [0] * len(names)
        for name, outcome in groups.items():
            counts = [sum(one.verdict == verdict and one.correct is outcome for one in self.texts) for verdict in names]
            if any(counts):
                ax.barh(names, counts, left=left, label=name if self.labelled else None)
                left = [total + count for total, count in zip(left, counts, strict=True)]
        ax.invert_yaxis()
        ax.set_xlabel(f"texts, over {self.candidates}")
        if self.labelled:
            ax.legend()

    def _repr_html_(self) -> str:
        """The shares, the words that decide and the replacements that flip, and the first texts."""
        tables = [html_column({**self.headlines(), "passes": self.passes})]
        if self.against is not None:
            tables.append(html_table(comparison_rows(self)))
        tables += [
            f"<p>{escape(title)}</p>{html_table(rows)}"
            for title, rows in (
                ("Words that decide most often", self.deciding_words()),
                ("Replacements that flip most often", self.flipping_replacements()),
            )
            if rows
        ]
        return self._framed("".join([*tables, html_table(self.rows())]))


def share_text(share: Share) -> str:
    """A share with its interval: "0.8350 (167 of 200; 0.7762 to 0.8836)"."""
    if share.value is None:
        return "\u2013"
    count = f"{share.count} of {share.total}" + (f", {share.open} open" if share.open else "")
    return f"{cell(share.value)} ({count}; {cell(share.low, 3)} to {cell(share.high, 3)})"


def comparison_rows(audit: Audit) -> list[dict[str, Any]]:
    """The shares of two models side by side, with their differences."""
    if audit.against is None:
        return []
    shares = {"accuracy": "accuracy_share", "robust": "robust_share", "flips": "flips"}
    return [
        {
            "share": "robust accuracy" if name == "robust" and audit.labelled else name,
            audit.model: getattr(audit, shares[name]).value,
            f"{audit.against.model}{' (against)' if audit.against.model == audit.model else ''}": getattr(
                audit.against, shares[name]
            ).value,
            "difference": difference.value,
            "low": difference.interval[0],
            "high": difference.interval[1],
        }
        for name, difference in audit.differences().items()
    ]


def _left(one: AuditedText) -> float:
    after = None if one.measured is None else one.measured["after"]
    return 1.0 if after is None else float(after)


def _paired(pairs: list[tuple[AuditedText, AuditedText]], belongs: Callable[[AuditedText], bool]) -> PairedDifference:
    outcomes = Counter((belongs(first), belongs(second)) for first, second in pairs)
    return PairedDifference(outcomes[True, False], outcomes[False, True], len(pairs))


def _same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()
