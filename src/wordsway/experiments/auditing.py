"""Audits: the profile and the verdict of every text of a data set, one trial each, kept in a store."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wordsway.checks import check_seed, check_several, check_size
from wordsway.data.texts import Samples, make_sample, read_samples
from wordsway.errors import InputError, WordswayError, one_line
from wordsway.experiments import executors
from wordsway.experiments.audit_records import Audit, AuditedText
from wordsway.experiments.audit_trials import EXPERIMENT, NAME, VERSION, remember
from wordsway.experiments.executors import Backend
from wordsway.experiments.experiment import Trial, canonical
from wordsway.experiments.runner import Part, Plan, run_plan
from wordsway.experiments.store import DIED, FAILED, Store
from wordsway.experiments.texts import weights_print
from wordsway.models import load
from wordsway.models.candidates import candidates_named
from wordsway.models.model import Model
from wordsway.models.outputs import LABELS, Output, chosen_output
from wordsway.seeds import generator

_SHOWN = 8  # labels that a message lists


def audit(
    model: str | Path | Model,
    texts: str | os.PathLike[str] | Iterable[str] | Samples,
    labels: Iterable[Any] | None = None,
    *,
    column: str | None = None,
    label_column: str | None = None,
    candidates: str = "near:30",
    on: str | None = None,
    answers: Sequence[str] | None = None,
    budget: int | None = None,
    exhaustive: bool = False,
    limit: int | None = None,
    cut: bool = False,
    chat: bool = False,
    seed: int = 0,
    against: str | Path | Model | None = None,
    device: str = "auto",
    dtype: str | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    workers: int = 1,
    executor: Executor | Backend | None = None,
    progress: bool = False,
) -> Audit:
    """Return how many decisions of a model on a data set hold when one word is replaced.

    For each text: the prediction, the profile of its words (masked, typical and worst effect, see `Model.profile`) and
    the verdict over a declared set of candidates (flips, safe, or not found; see `Model.flips`).

    Parameters
    ----------
    model
        A model, or what `load` takes; other processes can only load models by name.
    texts
        A .csv, .jsonl, .parquet or .txt file or a folder of .txt files, or the texts themselves.
    labels
        Classes of the texts, by name or number, for texts that are given themselves; None: unknown.
    column, label_column
        Columns of a file; default: guessed, which `notes` of the result state.
    candidates
        As for `Model.flips`.
    on, answers
        The prediction, as for `Model.flips`.
    budget
        Candidates to try per text; default: all, or until one flips.
    exhaustive
        Whether to continue after the first flip, so that the flips of each word are counted.
    limit
        Number of texts, drawn with the seed; default: all.
    cut, chat
        As for `Model.read`.
    seed
        Seed of the random words of the profiles, and of `limit`.
    against
        Another model, measured on the same texts.
    device, dtype
        As for `load`, for models by name.
    store
        Where texts are stored as soon as they are measured, so that the same call continues after an interrupt;
        default: a temporary file.
    workers, executor
        Number of processes, 1 being this one, or where to run otherwise, such as a backend of
        `wordsway.experiments.executors.dask`. The numbers are the same in all of them.
    progress
        Print on stderr what was guessed and how many texts are stored, and show a bar with the time left.

    Raises
    ------
    KeyboardInterrupt
        When interrupted; its message states how much is stored.

    Notes
    -----
    A text that cannot be measured (too long, empty, not UTF-8) is part of the result, with the reason.
    """
    samples = limited(given_samples(texts, labels, column, label_column), limit, seed)
    if answers is not None:
        check_several(answers, "answers")
    several = None if answers is None else tuple(answers)
    most = None if budget is None else check_size(budget, "budget")
    switches = bool(exhaustive), bool(cut), bool(chat)
    plan = AuditPlan(samples, candidates, on, several, most, *switches, check_seed(seed))
    models = [model] if against is None else [model, against]
    subjects = [plan.subject(one, device, dtype) for one in models]
    backend: Executor | Backend
    if executor is None and check_size(workers, "workers") == 1:
        backend = executors.inline()
    else:
        for subject in subjects:
            subject.check_loads()
        backend = executors.local(workers) if executor is None else executor
    if store is None:
        with tempfile.TemporaryDirectory(prefix="wordsway-") as folder, Store(Path(folder) / "store.sqlite") as opened:
            return plan.run(subjects, opened, backend, progress)
    if isinstance(store, Store):
        return plan.run(subjects, store, backend, progress)
    with Store(Path(store)) as opened:
        return plan.run(subjects, opened, backend, progress)


def given_samples(
    texts: Any, labels: Iterable[Any] | None = None, column: str | None = None, label_column: str | None = None
) -> Samples:
    """Return the texts of a file or folder, or those that are given themselves."""
    if isinstance(texts, Samples):
        return texts
    if isinstance(texts, str | os.PathLike):
        if labels is not None:
            raise InputError("labels are those of texts that are given themselves, got a file: use label_column")
        return read_samples(os.fspath(texts), column, label_column)
    if column is not None or label_column is not None:
        raise InputError("column and label_column are those of a file, got texts: use labels")
    several = list(texts)
    names = [None] * len(several) if labels is None else list(labels)
    if not several:
        raise InputError("texts must have at least one text, got none")
    if len(names) != len(several):
        raise InputError(f"labels must be as many as texts, got {len(names)} for {len(several)}")
    samples = [make_sample(place, text, name) for place, (text, name) in enumerate(zip(several, names, strict=True), 1)]
    return Samples(f"{len(several)} texts", tuple(samples), None, None if labels is None else "labels")


def limited(samples: Samples, limit: int | None, seed: int) -> Samples:
    """Return so many of the texts, drawn at random and in their order; a larger limit keeps those of a smaller one."""
    check_seed(seed)
    if limit is None or check_size(limit, "limit") >= len(samples.samples):
        return samples
    drawn = sorted(generator(seed, "audit limit").permutation(len(samples.samples))[:limit].tolist())
    return replace(samples, samples=tuple(samples.samples[place] for place in drawn))


@dataclass(frozen=True)
class Subject:
    """A model under audit.

    Attributes
    ----------
    model : Model
    output : Output
    labels : mapping
        The class of each label of the data set; empty where labels are not used.
    shared : mapping
        The parameters that its trials share.
    notes : tuple of str
    """

    model: Model
    output: Output
    labels: Mapping[str, str]
    shared: Mapping[str, Any]
    notes: tuple[str, ...]

    def check_loads(self) -> None:
        """Raise unless other processes can load the model by its name."""
        name, shared = self.model.name, self.shared
        try:
            same = weights_print(load(shared["model"], device=shared["device"], dtype=shared["dtype"]))
        except WordswayError:
            same = None
        if same != shared["weights"]:
            raise InputError(f"workers must load the model by its name, got an object ({name}): use workers=1 for it")


@dataclass(frozen=True)
class AuditPlan:
    """Texts and how they are measured; what does not depend on the model is checked."""

    samples: Samples
    candidates: str
    on: str | None
    answers: tuple[str, ...] | None
    budget: int | None
    exhaustive: bool
    cut: bool
    chat: bool
    seed: int

    def subject(self, model: str | Path | Model, device: str = "auto", dtype: str | None = None) -> Subject:
        """Load a model, and check that it decides, has the candidates and the classes of the labels."""
        loaded = model if isinstance(model, Model) else load(model, device=device, dtype=dtype)
        read = loaded.read("a", chat=self.chat)
        output = chosen_output(loaded, self.on, None, self.answers, None, self.chat)
        if not output.decides:
            raise InputError(
                f"an audit needs a model that decides, got {loaded.name} on {output.name}: use a classifier"
            )
        candidates_named(loaded, read, self.candidates)
        path = Path(self.candidates).expanduser()
        listed = path.is_file()
        labels, notes = self._labels(output, loaded.name)
        shared = {
            "model": _absolute(loaded.name),
            "weights": weights_print(loaded),
            "device": str(loaded.device) if isinstance(model, Model) else device,
            "dtype": str(loaded.dtype).removeprefix("torch."),
            "candidates": str(path.resolve()) if listed else self.candidates,
            "words": hashlib.sha256(path.read_bytes()).hexdigest()[:16] if listed else None,
            "on": None if self.answers else output.name,
            "answers": None if self.answers is None else json.dumps(self.answers),
            "budget": self.budget,
            "exhaustive": self.exhaustive,
            "cut": self.cut,
            "chat": self.chat,
        }
        remember(loaded, shared)
        return Subject(loaded, output, labels, shared, notes)

    def _labels(self, output: Output, name: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """The class of each label; a guessed column that does not hold classes is not used, which a note states."""
        samples = self.samples
        notes = []
        if samples.column is not None:
            how = " (guessed)" if samples.column in samples.guessed else ""
            notes.append(f"texts are from the column {samples.column!r}{how}")
        values = sorted({one.label for one in samples.samples if one.label is not None})
        if samples.label_column is None or not values:
            return {}, (*notes, "there are no labels: accuracy is not measured")
        guessed = samples.label_column in samples.guessed
        classes = None if output.kind == LABELS else matched_labels(values, output.classes)
        if classes is None:
            listed = ", ".join(values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
            message = (
                f"{samples.label_column!r} must hold classes of {name} ({', '.join(output.classes)}), got {listed}"
            )
            if not guessed:
                raise InputError(f"the labels in {message}: rename them, or number classes from 0")
            return {}, (*notes, f"labels are not used: {message}")
        mapping = (
            ", ".join(f"{value} = {one}" for value, one in classes.items() if value != one) if output.classes else ""
        )
        how = f"{' (guessed)' if guessed else ''}{f': {mapping}' if mapping else ''}"
        return classes, (*notes, f"labels are from {samples.label_column!r}{how}")

    def trials(self, subject: Subject) -> list[Trial | None]:
        """The trial of each text; None where it cannot be measured. Equal texts have the same one."""
        return [
            None
            if one.problem is not None
            else Trial(NAME, VERSION, canonical({**subject.shared, "text": one.text}), self.seed)
            for one in self.samples.samples
        ]

    def run(
        self, subjects: Sequence[Subject], store: Store, backend: Executor | Backend, progress: bool = False
    ) -> Audit:
        """Measure what the store lacks, and return the record of the first model, compared with the second."""
        trials = [self.trials(subject) for subject in subjects]
        planned = tuple(dict.fromkeys(trial for some in trials for trial in some if trial is not None))
        finished = store.finished(NAME, VERSION)
        missing = tuple(trial for trial in planned if trial not in finished)
        if progress:
            notes = dict.fromkeys(note for subject in subjects for note in subject.notes)
            print(*map(one_line, notes), file=sys.stderr, sep="\n")  # labels of a file may hold control characters
            print(f"{len(missing)} of {len(planned)} measurements are to do", file=sys.stderr)
        run_plan(Plan((Part(EXPERIMENT, planned, missing, "", None),)), store, backend, progress=progress)
        known = _records(store, planned)
        unfinished = {trial for trial in planned if trial not in known}
        errors = {row.trial: row.error or row.state for row in store.rows([NAME], (FAILED, DIED), unfinished)}
        audits = [self._audit(subject, some, known, errors) for subject, some in zip(subjects, trials, strict=True)]
        return audits[0] if len(audits) == 1 else replace(audits[0], against=audits[1])

    def _audit(
        self,
        subject: Subject,
        trials: Sequence[Trial | None],
        known: Mapping[Trial, Mapping[str, Any]],
        errors: Mapping[Trial, str],
    ) -> Audit:
        texts = []
        for number, (one, trial) in enumerate(zip(self.samples.samples, trials, strict=True)):
            label = None if one.label is None else subject.labels.get(one.label)
            record = None if trial is None else known.get(trial)
            reason: str | None = one.problem
            if record is not None:
                reason = record.get("reason")
            elif trial is not None:
                reason = errors.get(trial, "it was not measured")
            measured = None if reason is not None else record
            texts.append(
                AuditedText(number, one.line, one.text, label, measured, reason, trial is not None and record is None)
            )
        return Audit(
            subject.model.name,
            self.samples.source,
            subject.output.name,
            self.candidates,
            self.budget,
            self.seed,
            tuple(texts),
            subject.notes,
        )


def matched_labels(values: Sequence[str], classes: Sequence[str]) -> dict[str, str] | None:
    """Return the class of each label, or None where some are no classes.

    Labels are names of classes, unique beginnings of them ("pos" for "positive"), numbers from 0, or -1 and 1 for two
    classes; where the classes have no names (the next token), labels are what they should be.
    """
    if not classes:
        return {value: value for value in values}
    by_name = {value: [one for one in classes if one.casefold() == value.casefold()] for value in values}
    by_start = {value: [one for one in classes if one.casefold().startswith(value.casefold())] for value in values}
    numbers = {value: _whole(value) for value in values}
    if len(classes) == 2 and set(numbers.values()) <= {-1, 1} and -1 in numbers.values():
        numbers = {value: 0 if number == -1 else 1 for value, number in numbers.items()}
    by_number = {
        value: [classes[number]] if number is not None and 0 <= number < len(classes) else []
        for value, number in numbers.items()
    }
    for matches in (by_name, by_number, by_start):
        if all(len(found) == 1 for found in matches.values()):
            return {value: found[0] for value, found in matches.items()}
    return None


def _whole(value: str) -> int | None:
    """The whole number that a label is, also where a table has it as 1.0."""
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _absolute(name: str) -> str:
    """A path that workers in other folders find too."""
    path = Path(name).expanduser()
    return str(path.resolve()) if path.exists() else name


def _records(store: Store, trials: Sequence[Trial]) -> dict[Trial, Mapping[str, Any]]:
    finished = store.finished(NAME, VERSION)
    present = [trial for trial in trials if trial in finished]
    return dict(zip(present, (result.record for result in store.records(present)), strict=True))
