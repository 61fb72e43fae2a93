"""One trial of an audit: the profile and the verdict of a text, measured in whichever process it runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from wordsway.errors import InputError, NumericalError, WordswayError, one_line
from wordsway.experiments.experiment import Experiment, Parameters
from wordsway.experiments.texts import weights_print
from wordsway.models import load
from wordsway.models.candidates import candidates_named
from wordsway.models.flips import SAFE, Flips
from wordsway.models.model import Model
from wordsway.models.profile import TextProfile
from wordsway.models.words import Text

NAME, VERSION = "audit", 2
_DIGITS = 6  # of stored numbers: machines agree on these where the last digits of float32 depend on the processor
_MODELS: dict[tuple[str, str, str], Model] = {}  # by weights, device and dtype, in this process
_KEPT = 2  # models that a process keeps: one, and the one that it is compared with
_LOCK = threading.Lock()  # a model measures one text at a time


def audit_trial(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Measure one text; one that cannot be measured has the reason as its record, which is the same every time."""
    options = {"cut": parameters["cut"], "chat": parameters["chat"]}
    answers = None if parameters["answers"] is None else json.loads(parameters["answers"])
    directed = {"on": parameters["on"], "answers": answers, **options}
    with _LOCK:
        model = _model(parameters)
        try:
            read = model.read(parameters["text"], **options)
            profile = model.profile(read, seed=seed, **directed)
            flips = _flips(model, read, parameters, directed)
        except (InputError, NumericalError) as error:
            return {"reason": one_line(error)}
    verdict = _plain(flips, profile)
    names = ("position", "word", "start", "end", "masked", "typical", "typical_se", "worst", "replacement")
    words = [{name: row[name] for name in (*names, "becomes", "flip", "leads")} for row in profile.rows()]
    if parameters["exhaustive"]:
        counts = [{"tried": 0, "flips": 0}] * len(words) if flips is None else flips.rows()
        words = [
            {**one, **{name: row[name] for name in ("tried", "flips")}} for one, row in zip(words, counts, strict=True)
        ]
        verdict["flipping"] = sum(one["flips"] for one in words)
    rounded: dict[str, Any] = _rounded({**verdict, "signed": profile.signed, "words": words})
    return rounded


def _flips(model: Model, read: Text, parameters: Parameters, directed: Mapping[str, Any]) -> Flips | None:
    """The search for a flip; None for a text without any candidate."""
    options = {name: parameters[name] for name in ("candidates", "budget", "exhaustive")}
    try:
        return model.flips(read, **options, **directed)
    except InputError:
        declared = candidates_named(model, read, parameters["candidates"])
        if any(declared.of(word) for word in read.scored):
            raise
        return None


def _plain(flips: Flips | None, profile: TextProfile) -> dict[str, Any]:
    """The verdict on a text; one without any candidate is safe."""
    if flips is None:
        empty = dict.fromkeys(("word", "position", "replacement", "after", "becomes", "nearest"))
        decided = {"prediction": profile.decision, "before": profile.before, "verdict": SAFE, **empty}
        return {**decided, "tried": 0, "total": 0, "passes": profile.passes}
    stored = flips.to_dict()
    names = ("verdict", "word", "position", "replacement", "after", "nearest", "tried", "total")
    return {
        "prediction": stored["class_before"],
        "before": stored["before"],
        **{name: stored[name] for name in names},
        "becomes": stored["class_after"] if flips.flip else None,
        "passes": flips.passes + profile.passes,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value


def _model(parameters: Parameters) -> Model:
    """The model of a trial: loaded by its name once per process, and the same one that the audit was started with."""
    key = _key(parameters)
    if key not in _MODELS:
        loaded = load(parameters["model"], device=parameters["device"], dtype=parameters["dtype"])
        if weights_print(loaded) != parameters["weights"]:
            raise WordswayError(f"{parameters['model']} must be the same model everywhere, got other weights here")
        remember(loaded, parameters)
    return _MODELS[key]


def remember(model: Model, parameters: Mapping[str, Any]) -> None:
    """Keep a model for the trials with these parameters that run in this process."""
    _MODELS.pop(_key(parameters), None)
    _MODELS[_key(parameters)] = model
    while len(_MODELS) > _KEPT:
        del _MODELS[next(iter(_MODELS))]


def _key(parameters: Mapping[str, Any]) -> tuple[str, str, str]:
    return parameters["weights"], parameters["device"], parameters["dtype"]


def _nothing(*_: Any) -> list[Any]:
    return []


EXPERIMENT = Experiment(
    name=NAME,
    title="Audit",
    about="The profile and the verdict of each text of a data set.",
    trial=audit_trial,
    grid=_nothing,
    trials={"quick": 1, "paper": 1},
    table=_nothing,
    claims=_nothing,
    plot=lambda table, figure: None,
    version=VERSION,
)
