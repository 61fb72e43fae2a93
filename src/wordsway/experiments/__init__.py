"""Experiments: trials on a grid, claims about their results, and the runner and the store that keep them."""

from wordsway.experiments.experiment import Estimate, Experiment, RunConfig, TrialResult, Verdict
from wordsway.experiments.results import FigureResult, figure_result
from wordsway.experiments.runner import RunSummary, run
from wordsway.experiments.store import Store

__all__ = [
    "Estimate",
    "Experiment",
    "FigureResult",
    "RunConfig",
    "RunSummary",
    "Store",
    "TrialResult",
    "Verdict",
    "figure_result",
    "run",
]
