"""Experiments: trials on a grid, claims about their results, and the runner and the store that keep them."""

from wordsway.experiments.audit import audit
from wordsway.experiments.audit_records import Audit
from wordsway.experiments.experiment import (
    Estimate,
    Experiment,
    Parameters,
    RunConfig,
    Table,
    TrialRecord,
    TrialResult,
    Verdict,
)
from wordsway.experiments.results import FigureResult, figure_result
from wordsway.experiments.runner import RunSummary, run
from wordsway.experiments.store import Store

__all__ = [
    "Audit",
    "Estimate",
    "Experiment",
    "FigureResult",
    "Parameters",
    "RunConfig",
    "RunSummary",
    "Store",
    "Table",
    "TrialRecord",
    "TrialResult",
    "Verdict",
    "audit",
    "figure_result",
    "run",
]
