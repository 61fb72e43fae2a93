"""Views of audits: a summary on the terminal, and a page with every text."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from wordsway.errors import visible
from wordsway.experiments.audit_records import NOT_MEASURED, comparison_rows
from wordsway.experiments.intervals import DIFFERENCE_INTERVAL, SHARE_INTERVAL
from wordsway.report.pages import environment, read_template
from wordsway.report.terminal import NOTE, console, show, table

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


def audit_page(audit: Audit) -> str:
    """Return the page of an audit as HTML, to be written as UTF-8; it has all rows and the words of each text."""
    script = read_template("audit.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    settings = {
        "model": audit.model,
        "texts": audit.source,
        "candidates": audit.candidates,
        "tried": None if audit.budget is None else f"at most {audit.budget} per text",
        "measured on": audit.on,
        "passes": f"{audit.passes:,}",
        "seed": audit.seed,
    }
    template = environment().get_template("audit.html.j2")
    return template.render(
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        data=Markup(json.dumps(_data(audit), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")),
        lead=_lead(audit),
        settings={name: value for name, value in settings.items() if value is not None},
        shares=audit.shares(),
        interval=SHARE_INTERVAL,
        verdicts=audit.verdicts,
        verdict_names=list(audit.verdicts),
        notes=audit.notes,
        comparison=comparison_rows(audit),
        difference_interval=DIFFERENCE_INTERVAL,
        deciding_words=audit.deciding_words(),
        flipping_replacements=audit.flipping_replacements(),
        least=audit.least_robust(),
        most=[one for one in audit.most_robust() if one.measured and one.measured["after"] is not None],
        labelled=audit.labelled,
        candidates=audit.candidates,
    )


def _lead(audit: Audit) -> str:
    share, robust = audit.flips, audit.robust_share
    if share.value is None or robust.value is None:
        return f"None of {len(audit.texts)} texts could be measured."
    kept = "are predicted correctly and keep their prediction" if audit.labelled else "keep their prediction"
    return (
        f"One other word flips the prediction of {audit.model} for {share.count} of {share.total} texts; "
        f"{robust.count} of {robust.total} {kept} whatever candidate replaces one word."
    )


def _data(audit: Audit) -> dict[str, Any]:
    """What the script of the page reads."""
    words = [None if one.measured is None else one.measured["words"] for one in audit.texts]
    signed = all(one.measured["signed"] for one in audit.texts if one.measured is not None)
    return {
        "signed": signed,
        "labelled": audit.labelled,
        "against": None if audit.against is None else audit.against.model,
        "texts": [{**row, "words": some} for row, some in zip(audit.rows(), words, strict=True)],
    }
