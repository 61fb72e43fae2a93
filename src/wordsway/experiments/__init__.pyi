# The public names, module by module.
# isort: skip_file

from .auditing import audit as audit
from .audit_records import Audit as Audit
from .experiment import (
    Estimate as Estimate,
    Experiment as Experiment,
    Parameters as Parameters,
    RunConfig as RunConfig,
    Table as Table,
    TrialRecord as TrialRecord,
    TrialResult as TrialResult,
    Verdict as Verdict,
)
from .results import (
    FigureResult as FigureResult,
    figure_result as figure_result,
)
from .runner import (
    RunSummary as RunSummary,
    run as run,
)
from .store import Store as Store
