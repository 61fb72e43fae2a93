"""Views of audits: a summary on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wordsway.experiments.audit_records import NOT_MEASURED, comparison_rows
from wordsway.experiments.intervals import DIFFERENCE_INTERVAL, SHARE_INTERVAL
from wordsway.report.terminal import NOTE, console, show, table, visible

if TYPE_CHECKING:
    from wordsway.experiments.audit_records import Audit

_LISTED = 10  # words and replacements
_REFUSED = 5  # texts that could not be measured


def print_audit(audit: Audit) -> None:
    """Print the shares, the words that decide, the replacements that flip, and texts that were not measured."""
    tried = "" if audit.budget is None else f", {audit.budget} tried per text"
    shares = [{"share": name, "value": value} for name, value in audit.headlines().items()]
    counts = ", ".join(f"{name} {count}" for name, count in audit.verdicts.items() if count or name != NOT_MEASURED)
    title = f"{visible(audit.model)} on {visible(audit.source)}, over {visible(audit.candidates)}{tried}"
    show(title, table(shares, {"share": "share", "texts, interval": "value"}))
    out = console()
    out.print()
    out.print(f"texts: {counts}; {audit.passes} passes; intervals: {SHARE_INTERVAL}", style=NOTE, markup=False)
    if audit.against is not None:
        rows = comparison_rows(audit)
        out.print()
        show("Side by side", table(rows, {name: name for name in rows[0]}))
        out.print(f"differences on the texts that both measured: {DIFFERENCE_INTERVAL}", style=NOTE, markup=False)
    lists = {
        "Words that decide most often": (audit.deciding_words(), ("word", "texts", "typical", "flips")),
        "Replacements that flip most often": (audit.flipping_replacements(), ("replacement", "texts", "replaces")),
    }
    for heading, (rows, names) in lists.items():
        if rows:
            out.print()
            show(heading, table(rows[:_LISTED], {name: name for name in names}))
    refused = [one for one in audit.texts if one.reason is not None]
    if refused:
        out.print()
    for one in refused[:_REFUSED]:
        out.print(f"not measured: text {one.number} (line {one.line}): {visible(one.reason or '')}", markup=False)
    if len(refused) > _REFUSED:
        out.print(f"and {len(refused) - _REFUSED} others: see the exported rows", markup=False)
