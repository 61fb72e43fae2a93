"""The laboratory: experiments, their runner and store, the figures and the report."""

from wordsway.lab.experiment import Estimate, Experiment, Finished, Scope, Verdict
from wordsway.lab.runner import Tally, run
from wordsway.lab.store import Store

__all__ = ["Estimate", "Experiment", "Finished", "Scope", "Store", "Tally", "Verdict", "run"]
