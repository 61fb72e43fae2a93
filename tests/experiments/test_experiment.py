"""Experiments: canonical text, records that are refused, configurations, planned trials, and the plan."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.made import experiment, finished, row, trial
from wordsway import RandomAttention, gaussian_context, word_sensitivity
from wordsway.errors import InputError
from wordsway.experiments.experiment import (
    Estimate,
    Experiment,
    RunConfig,
    Trial,
    Verdict,
    canonical,
    canonical_record,
    overall,
    tally,
    worst,
)
from wordsway.experiments.runner import make_plan
from wordsway.experiments.store import DONE, FAILED, Store

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()

# Canonical text


def test_parameters_in_any_order_are_the_same_text() -> None:
    assert canonical({"n": 1, "d": 2}) == canonical({"d": 2, "n": 1}) == '{"d": 2, "n": 1}'
    assert canonical({}) == "{}"
    assert canonical({"text": 'ü "q"', "yes": True, "none": None, "x": 0.1}) == (
        '{"none": null, "text": "ü \\"q\\"", "x": 0.1, "yes": true}'
    )


def test_values_of_different_types_are_different_points() -> None:
    assert len({canonical({"n": value}) for value in (1, 1.0, True, "1", None)}) == 5


nested = st.recursive(plain, lambda part: st.lists(part) | st.dictionaries(st.text(), part), max_leaves=20)


@given(st.dictionaries(st.text(), plain), st.dictionaries(st.text(), nested))
def test_values_come_back(values: dict[str, Any], record: dict[str, Any]) -> None:
    assert json.loads(canonical(values)) == values
    assert canonical(dict(reversed(values.items()))) == canonical(values)
    assert json.loads(canonical_record(record)) == record
    assert list(json.loads(canonical_record(record))) == list(record)


def test_objects_with_to_dict_are_stored_as_what_it_returns_without_their_time_and_memory() -> None:
    found = word_sensitivity(RandomAttention(4, seed=0), gaussian_context(3, 4, 0), 1, ceiling=None)
    kept = {name: value for name, value in found.to_dict().items() if name not in ("seconds", "peak_mb")}
    assert kept["dtype"] == "float64"
    assert json.loads(canonical_record(found)) == kept
    inside = {"pair": (found, Verdict("c", "m", None)), "by": {"seed": found}}
    expected = {"pair": [kept, Verdict("c", "m", None).to_dict()], "by": {"seed": kept}}
    assert json.loads(canonical_record(inside)) == expected
    assert json.loads(canonical_record({"seconds": 3.0})) == {"seconds": 3.0}  # a trial's own number


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (math.nan, "finite numbers, got nan for '{}': use None"),
        (-math.inf, "finite numbers, got -inf for '{}'"),
        (torch.tensor(1.0), "plain values by name, got Tensor for '{}'"),
        (np.float64(1.0), "got float64 for '{}'"),
        (np.int64(1), "got int64 for '{}'"),
        (1j, "got complex for '{}'"),
        (b"x", "got bytes for '{}'"),
        ("\udcff", "UTF-8 can write"),
    ],
)
def test_values_that_are_not_plain_are_refused_by_their_name(bad: Any, message: str) -> None:
    for make, what, values, name in (
        (canonical, "parameters", {"a": bad}, "a"),
        (canonical_record, "a record", {"a": bad}, "a"),
        (canonical_record, "a record", {"a": [1, {"b": bad}]}, "a.1.b"),
    ):
        with pytest.raises(InputError, match=message.format(name)) as caught:
            make(values)
        assert str(caught.value).startswith(f"{what} must hold")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "bad", "message"),
    [
        *((canonical, {"a": bad}, "parameters must hold plain values by name, got") for bad in ([1], {"b": 1}, (1,))),
        *((canonical_record, bad, "got the key") for bad in ({1: 2}, {"a": {1: 2}}, {"a": [{None: 1}]})),
        *(
            (canonical_record, bad, "a record must be a dictionary or have to_dict")
            for bad in (None, 1.0, [("a", 1)], torch.ones(2))
        ),
    ],
)
def test_parameters_are_flat_and_records_are_dictionaries_with_names(
    make: Callable[[Any], str], bad: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(bad)


# Configurations and experiments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RunConfig(scale="papers"), r"quick, paper, got 'papers' \(did you mean 'paper'\?\)"),
        (lambda: RunConfig(scale=""), "scale must be one of"),
        *((lambda bad=bad: RunConfig(trials=bad), "trials must be an integer >= 1") for bad in (0, -3, 2.5, True)),
        *((lambda bad=bad: RunConfig(seed=bad), "seed must be an integer with") for bad in (-1, 2**63, 0.5)),
        *(
            (lambda bad=bad: experiment(bad), "lower case words joined by dashes")
            for bad in ("", "Fig2", "fig 2", "fig_2", "-a", "a-", "a--b", "../a", "a/b", "é")
        ),
        (lambda: experiment(trials={"quick": 1}), "one must have a number of trials at scale paper"),
        (lambda: experiment().planned(RunConfig(seed=2**63 - 2, trials=3)), r"seed must be an integer with .* < 2\^63"),
        (lambda: _over([{"n": 1, "d": 2}, {"d": 2, "n": 1}]), "the grid of one must not repeat a point"),
        (lambda: _over([{"n": [1]}]), "parameters must hold plain values"),
    ],
)
def test_bad_configurations_and_experiments_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def _over(points: Iterable[dict[str, Any]]) -> list[Trial]:
    """The trials of an experiment on some points."""
    return experiment(grid=lambda config: points).planned(RunConfig())


def test_a_finished_trial_has_parameters_and_entries_of_the_record_by_name() -> None:
    found = finished(3, {"value": 1.5, "n": "hidden"}, n=10)
    assert (found["n"], found["value"]) == (10, 1.5)
    with pytest.raises(KeyError):
        found["other"]


def test_verdicts() -> None:
    verdicts = {holds: Verdict("c", "m", holds) for holds in (True, False, None)}
    words = {holds: verdict.word for holds, verdict in verdicts.items()}
    assert words == {True: "holds", False: "does not hold", None: "cannot tell"}
    plain = {"claim": "c", "measured": "m", "holds": None, "weaker": "", "check": False, "source": ""}
    assert verdicts[None].to_dict() == {**plain, "outcome": "cannot tell"}
    assert Verdict.from_dict({"claim": "c", "measured": "m", "holds": None}) == verdicts[None]  # of version 0.1
    for outcomes, expected in (([], None), ([True], True), ([True, None], None), ([None, False, True], False)):
        assert overall([verdicts[holds] for holds in outcomes]) is expected


def test_a_weaker_claim_and_a_check_of_the_code() -> None:
    weaker = Verdict("c", "m", False, weaker="only on reviews", source="it grows")
    assert (weaker.word, weaker.details) == ("weaker than the source", "m; only on reviews")
    checks = {holds: Verdict("c", "m", holds, check=True) for holds in (True, False, None)}
    assert [check.word for check in checks.values()] == [
        "check of the code passes",
        "check of the code fails",
        "check of the code: cannot tell",
    ]
    for one in (weaker, *checks.values()):
        assert Verdict.from_dict(one.to_dict()) == one
    for holds, check in ((True, False), (None, False), (False, True)):
        with pytest.raises(InputError, match="only a claim that does not hold may be weaker than its source, got 'c'"):
            Verdict("c", "m", holds, weaker="how", check=check)
    with pytest.raises(InputError, match="holds must be true, false or null, got 'x'"):
        Verdict.from_dict({"claim": "c", "measured": "m", "holds": "x"})


def test_verdicts_are_counted_by_kind_and_a_figure_is_as_good_as_its_worst() -> None:
    passes, fails = (Verdict("c", "m", holds, check=True).word for holds in (True, False))
    words = ["holds"] * 2 + ["weaker than the source", "does not hold", passes, passes, "cannot tell"]
    assert tally(words) == (
        "2 hold, 1 weaker than the source, 1 does not hold, 1 cannot tell, 2 checks of the code pass"
    )
    assert tally(["does not hold"] * 2 + [fails, passes]) == (
        "2 do not hold, 1 check of the code passes, 1 check of the code fails"
    )
    assert tally([]) == "no claims"
    assert worst(words) == "does not hold"
    assert worst(["holds", fails, "cannot tell"]) == fails
    assert worst(["holds", "weaker than the source", passes]) == "weaker than the source"
    assert worst(["holds", passes]) == "holds"
    assert worst([passes]) == passes
    assert worst([]) == "cannot tell"


# Trials


def test_trials_are_points_times_seeds() -> None:
    found = experiment(version=3).planned(RunConfig(seed=5))
    assert found == [Trial("one", 3, f'{{"n": {n}}}', seed) for n in (1, 2) for seed in (5, 6)]
    assert len(experiment().planned(RunConfig("paper"))) == 6
    assert len(_over(iter([{"n": 1}]))) == 2  # any iterable will do
    last = experiment().planned(RunConfig(seed=2**63 - 2, trials=2))
    assert [one.seed for one in last][:2] == [2**63 - 2, 2**63 - 1]


def test_trial_k_does_not_depend_on_the_number_of_trials() -> None:
    few, many = (experiment().planned(RunConfig(trials=trials)) for trials in (4, 10))
    for point in ('{"n": 1}', '{"n": 2}'):
        first, all_of_them = ([found for found in some if found.parameters == point] for some in (few, many))
        assert first == all_of_them[:4]


def test_the_grid_gets_the_configuration() -> None:
    one = experiment(grid=lambda config: [{"scale": config.scale, "model": config.model, "seed": config.seed}])
    found = one.planned(RunConfig("paper", "small", 2, 7))
    assert {each.parameters for each in found} == {'{"model": "small", "scale": "paper", "seed": 7}'}
    assert [each.seed for each in found] == [7, 8]


def test_needed_experiments_come_first_and_once() -> None:
    base = experiment("base")
    left, right = experiment("left", needs=(base,)), experiment("right", needs=(base,))
    top = experiment("top", needs=(left, right), trials={"quick": 1, "paper": 1})
    names = [found.experiment for found in top.planned(RunConfig())]
    assert names == ["base"] * 4 + ["left"] * 4 + ["right"] * 4 + ["top"] * 2
    assert list(top.with_needs()) == ["base", "left", "right", "top"]
    assert top.with_needs()["left"] is left
    assert {found.seed for found in top.planned(RunConfig(trials=1, seed=9))} == {9}
    plan = make_plan([left, base, right, left], RunConfig(), None)
    assert [part.experiment.name for part in plan.parts] == ["base", "left", "right"]
    assert len(plan.trials) == len(set(plan.trials)) == 12
    assert plan.missing == plan.trials  # there is no store


# The plan


def _estimate(parameters: Any) -> Estimate:
    return Estimate(10.0 * parameters["n"], 100 * parameters["n"])


def test_stored_trials_are_not_missing_and_are_the_estimate_of_others(tmp_path: Path) -> None:
    one = experiment(estimate=_estimate)
    with Store(tmp_path / "store.sqlite") as store:
        for kept, seconds in ((trial(0, n=1), 3.0), (trial(7, n=1), 5.0), (trial(0, version=2, n=2), 99.0)):
            store.add(row(kept, DONE, seconds=seconds, peak_mb=2.0))
        store.add(row(trial(1, n=2), FAILED, seconds=1000.0))
        (part,) = make_plan([one], RunConfig(), store).parts
        assert part.missing == (trial(1, n=1), trial(0, n=2), trial(1, n=2))
        assert len(part.trials) == 4
        assert part.estimate == Estimate(4.0 + 2 * 20.0, 2_000_000)  # measured for n = 1, the formula for n = 2
        (newer,) = make_plan([replace(one, version=2)], RunConfig(), store).parts
        assert len(newer.missing) == 3


def test_what_cannot_be_estimated_is_none(tmp_path: Path) -> None:
    only = experiment(grid=lambda config: [{"n": 1}])
    with Store(tmp_path / "store.sqlite") as store:

        def estimate(one: Experiment, trials: int | None = None) -> Estimate | None:
            return make_plan([one], RunConfig(trials=trials), store).parts[0].estimate

        store.add(row(trial(0, n=1), seconds=3.0, peak_mb=2.0))
        assert estimate(experiment()) is None  # n = 2 is unknown
        assert estimate(only) == Estimate(3.0, 2_000_000)
        assert estimate(only, trials=1) == Estimate(0, 0)
        store.add(row(trial(0, n=2), seconds=None, peak_mb=None))
        assert estimate(experiment()) is None


@pytest.mark.parametrize(
    ("points", "sizes"),
    [
        ([{"n": 10, "d": 96}, {"n": 250, "d": 384}, {"n": 50, "d": 96}], "d 96 to 384, n 10 to 250"),
        ([{"data": "imdb", "n": 5}, {"data": "gaussian", "n": 5}], "data imdb/gaussian, n 5"),
        ([{"x": 0.5}, {"x": 2}], "x 0.5 to 2"),
        ([{"a": 1}, {"b": 2}], "a 1, b 2"),
        ([{"flag": True}, {"flag": False}], "flag True/False"),
        ([{"model": None}, {"model": "small"}], "model None/small"),
        ([{}], ""),
        ([], ""),
    ],
)
def test_sizes_for_people(points: list[dict[str, Any]], sizes: str) -> None:
    (part,) = make_plan([experiment(grid=lambda config: points)], RunConfig(), None).parts
    assert part.sizes == sizes
