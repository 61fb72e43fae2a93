"""The laboratory: experiments, their runner and store, the figures and the report."""

from wordsway.experiments.experiment import Estimate, Experiment, RunConfig, TrialResult, Verdict
from wordsway.experiments.runner import RunSummary, run
from wordsway.experiments.store import Store

__all__ = ["Estimate", "Experiment", "RunConfig", "RunSummary", "Store", "TrialResult", "Verdict", "run"]
