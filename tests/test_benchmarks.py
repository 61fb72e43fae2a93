"""The published algorithm follows its description, and the benchmark reports what it measured."""

from __future__ import annotations

import math
import mmap
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import wordsway as ws
from benchmarks import __main__ as program
from benchmarks import baselines, growth, kept, laboratory, metering, published
from benchmarks.cases import CASES, Case
from benchmarks.child import JOBS, ChildError
from benchmarks.report import Outcome, Row, Target, failures, machine, number, page, render, table
from benchmarks.sides import Contest, Work, alternate, peak
from wordsway.experiments import Store
from wordsway.seeds import generator, normal

ROOT = Path(__file__).resolve().parent.parent
N, D = 5, 4
RADIUS = math.sqrt(D)


def _map(name: str) -> published.Map:
    if name in ("raf", "relu-raf"):
        weight = torch.randn(D, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return published.attention(weight, "softmax" if name == "raf" else "relu")
    return published.layers(published.draw_layers(N * D, None if name == "rf" else 3, seed=1))


# The published algorithm


@pytest.mark.parametrize("name", ["rf", "drf", "raf", "relu-raf"])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_ascent_returns_a_witness_in_the_ball_and_its_value(name: str, seed: int) -> None:
    X, phi = ws.gaussian_context(N, D, seed=seed), _map(name)
    best = published.ascend(published.along(phi, X, 2), D, RADIUS, published.RATE[name], 60, seed)
    moved = X.clone()
    moved[2] += best.delta
    plain = torch.linalg.vector_norm(phi(moved) - phi(X)) / torch.linalg.vector_norm(phi(X))
    assert best.value == pytest.approx(plain.item(), rel=1e-12)
    assert best.value == pytest.approx(published.change(phi, X, 2, best.delta), rel=1e-12)
    assert torch.linalg.vector_norm(best.delta) <= RADIUS * (1 + 1e-12)
    assert 0 < best.first < 0.05 < best.value
    assert not best.delta.requires_grad


def test_more_steps_never_end_lower() -> None:
    X, phi = ws.gaussian_context(N, D, seed=3), _map("raf")
    features = published.along(phi, X, 0)
    values = [published.ascend(features, D, RADIUS, 10.0, steps, 0).value for steps in (1, 2, 5, 20, 100)]
    assert values == sorted(values)


def test_a_step_moves_by_the_rate_times_the_gradient_and_is_put_back_onto_the_ball() -> None:
    start = published.START * normal(generator(7, "published start"), D)

    def features(delta: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.ones(1, dtype=torch.float64), delta])  # relative change |delta|, gradient delta/|delta|

    direction = start / torch.linalg.vector_norm(start)
    inside = published.ascend(features, D, RADIUS, 0.5, 1, 7)
    torch.testing.assert_close(inside.delta, start + 0.5 * direction)
    outside = published.ascend(features, D, RADIUS, 100.0, 1, 7)
    torch.testing.assert_close(outside.delta, RADIUS * direction)
    assert outside.value == pytest.approx(RADIUS)
    assert outside.first == pytest.approx(float(torch.linalg.vector_norm(start)))


@pytest.mark.parametrize("score", ["softmax", "relu"])
def test_published_attention_is_our_map(score: str) -> None:
    X = ws.gaussian_context(N, D, seed=0)
    ours = ws.RandomAttention(D, score, seed=5)
    torch.testing.assert_close(published.attention(ours.weight, score)(X), ours(X), rtol=1e-12, atol=1e-12)


def test_a_row_of_relu_attention_without_weight_is_zero_and_differentiable() -> None:
    X = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    phi = published.attention(-torch.eye(2, dtype=torch.float64), "relu")
    delta = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    features = published.along(phi, X, 0)(delta)
    assert features.abs().max() == 0
    (gradient,) = torch.autograd.grad(features.sum(), delta)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(("depth", "variance"), [(None, 1.0), (3, 2.0)])
def test_dense_weights_have_the_variance_of_their_map(depth: int | None, variance: float) -> None:
    weights = published.draw_layers(120, depth, seed=0)
    assert len(weights) == (depth or 1)
    for weight in weights:
        assert weight.dtype == torch.float64
        assert float(weight.var()) * 120 == pytest.approx(variance, rel=0.06)
    assert depth is None or not torch.equal(weights[0], weights[1])


def test_the_block_of_a_word_gives_the_same_ascent_as_the_dense_weight() -> None:
    X = ws.gaussian_context(N, D, seed=0)
    (weight,) = published.draw_layers(N * D, None, seed=2)
    dense = published.ascend(published.along(published.layers([weight]), X, 3), D, RADIUS, 100.0, 100, 0)
    block = published.one_block(weight[:, 3 * D : 4 * D], weight @ X.reshape(-1))
    short = published.ascend(block, D, RADIUS, 100.0, 100, 0)
    assert short.value == pytest.approx(dense.value, rel=1e-11)
    torch.testing.assert_close(short.delta, dense.delta)


def test_a_drawn_block_has_the_law_of_the_dense_one() -> None:
    X = ws.gaussian_context(40, 30, seed=0)
    block, start = published.draw_block(X, 4, seed=0)
    assert block.shape == (1200, 30)
    assert float(block.var()) * 1200 == pytest.approx(1, rel=0.03)
    assert float(start.var()) == pytest.approx(1, rel=0.15)  # |flat(X)|^2 / 1200
    apart = start - block @ X[4]
    assert float(apart.var()) == pytest.approx(39 / 40, rel=0.15)
    alone, its_start = published.draw_block(X[:1], 0, seed=0)
    torch.testing.assert_close(its_start, alone @ X[0])


# Good baselines


def test_swaps_in_closed_form_are_those_of_the_plain_map() -> None:
    X, weight = ws.gaussian_context(N, D, seed=0), normal(generator(3, "weight"), (D, D))
    phi, embeddings = published.attention(weight, "softmax"), ws.gaussian_context(7, D, seed=1)
    expected = [published.change(phi, X, 2, vector - X[2]) for vector in embeddings]
    torch.testing.assert_close(baselines.swaps(weight, X, 2, embeddings), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("score", ["softmax", "relu"])
def test_both_forms_of_the_search_baseline_are_the_plain_map(score: str) -> None:
    X, weight = ws.gaussian_context(N, D, seed=0), normal(generator(3, "weight"), (D, D))
    phi, deltas = published.attention(weight, score), ws.gaussian_context(7, D, seed=1)
    expected = torch.tensor([published.change(phi, X, 2, delta) for delta in deltas], dtype=torch.float64)
    for form in (baselines._whole_map, baselines._rows_that_move):
        torch.testing.assert_close(form(weight, X, 2, score)(deltas), expected, rtol=1e-9, atol=1e-9)


def test_lbfgs_finds_the_top_of_a_quadratic_in_the_ball() -> None:
    target = torch.tensor([3.0, 4.0, 0.0])
    point = baselines.lbfgs(lambda delta: 100 - (delta - target).square().sum(1), 3, radius=2.0)
    torch.testing.assert_close(point, (0.4 * target).expand(len(point), 3), rtol=1e-2, atol=2e-2)


def test_sides_run_in_turn_on_one_thread_after_an_untimed_round() -> None:
    order: list[tuple[str, int]] = []

    def side(name: str) -> str:
        order.append((name, torch.get_num_threads()))
        return name.upper()

    results, seconds = alternate({"baseline": lambda: side("baseline"), "ours": lambda: side("ours")}, runs=2)
    assert order == [("baseline", 1), ("ours", 1)] * 3
    assert results == {"baseline": "BASELINE", "ours": "OURS"}
    assert set(seconds) == {"baseline", "ours"}


def test_a_floor_is_arithmetic_or_traffic_at_the_peak_whichever_takes_longer() -> None:
    machine = {"single": 100.0, "double": 50.0, "traffic": 10.0}
    assert Work(single=200, double=50, traffic=29).floor(machine) == 3.0
    assert Work(single=200, double=50, traffic=40).floor(machine) == 4.0
    measured = peak()
    assert measured.keys() == machine.keys()
    assert min(measured.values()) > 1e8


def test_a_contest_states_all_sides_and_its_targets() -> None:
    contest = Contest("raf", baseline=6.0, ours=2.0, floor=0.5, gap=1e-7, published=400.0, what="closed form")
    cells = contest.row.cells
    assert [cells[name] for name in ("times baseline", "times published", "ours / floor")] == ["3.00", "200", "4.00"]
    assert [target.holds for target in contest.targets(3, 1e-7, published=200)] == [True, True, True]
    assert [target.holds for target in contest.targets(3.1, 1e-8, published=201)] == [False, False, False]


# Metering


def test_measure_repeats_after_a_warm_up_and_sees_the_memory() -> None:
    runs: list[int] = []

    def work(run: int) -> int:
        runs.append(run)
        with mmap.mmap(-1, 80_000_000) as block:  # pages of the system: an allocator may keep what is released
            for start in range(0, len(block), mmap.PAGESIZE):
                block[start] = 1
            return sum(block[:: mmap.PAGESIZE])

    results, costs = metering.measure(work, runs=3)
    assert runs == [0, 0, 1, 2]
    assert results == [-(-80_000_000 // mmap.PAGESIZE)] * 3
    assert 0 < costs["seconds"] <= costs["slowest"]
    assert costs["runs"] == 3
    assert costs["peak"] > 70_000_000
    assert 70_000_000 < costs["rise"] < 120_000_000 or sys.platform != "linux"
    assert metering.measure(work, warm=False)[1]["runs"] == 1
    assert runs[4:] == [0]


# The page


_OUTCOME = Outcome(
    (Row("First", {"case": "a", "s": "1"}), Row("Second", {"case": "b|c"}), Row("First", {"case": "long", "S": "2"})),
    (Target("a", "at least 3", "4", True), Target("b", "at least 5", "4", False)),
    ("A remark.",),
)


def test_a_table_has_the_columns_of_all_lines_and_is_padded() -> None:
    expected = "| case | s   | S   |\n| ---- | --- | --- |\n| a    | 1   |     |\n| long |     | 2   |\n"
    assert table([{"case": "a", "s": "1"}, {"case": "long", "S": "2"}]) == expected


def test_rows_are_grouped_by_table_and_targets_come_last() -> None:
    text = render([_OUTCOME])
    places = [text.index(part) for part in ("## First", "| long", "## Second", "b\\|c", "- A remark.", "## Targets")]
    assert places == sorted(places)
    assert "| b    | at least 5 | 4        | **no** |" in text
    assert "| a    | at least 3 | 4        | yes    |" in text
    assert "Targets" not in render([_OUTCOME], targets=False)


def test_the_page_describes_the_machine_without_naming_it() -> None:
    text = page([_OUTCOME])
    assert machine() in text
    assert f"torch {torch.__version__}" in text
    assert str(Path.home()) not in text
    assert platform.node() not in machine().split()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.09172, "0.0917"), (2.351, "2.35"), (118.4, "118"), (1420.0, "1,420"), (2e-7, "2.0e-07")],
)
def test_numbers_are_written_with_three_digits(value: float, text: str) -> None:
    assert number(value) == text


# The program


@pytest.fixture(autouse=True)
def _own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "FOLDER", tmp_path_factory.mktemp("kept"))


def _in_process(job: str, **parameters: Any) -> dict[str, Any]:
    return JOBS[job](**parameters)


def test_list_names_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CASES)


def test_an_unknown_case_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["raf", "rff"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("unknown case 'rff': choose from raf, ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("raf", "raf, n=6"),
        ("rf", "rf, n=6"),
        ("drf", "drf, L=2"),
        ("rf-150", "rf, n=8"),
        ("vocabulary-closed", "raf, n=6"),
        ("raf-lbfgs", "raf, n=6"),
        ("relu-raf-lbfgs", "relu-raf, n=6"),
        ("accuracy", "raf, n=6"),
        ("generalization", "raf, n=4"),
        ("lipschitz", "minilm, layer 3, n=4"),
        ("lipschitz-short", "minilm, layer 3, n=12"),
        ("lipschitz-16384", "one random head of 4"),
        ("growth", "raf"),
        ("ntk", "N=25"),
        ("ntk-short", "tangent kernel, N=25"),
        ("robust-rf-short", "robust-rf, tanh, d=6"),
        ("generalization-short", "generalization, raf, n=4"),
        ("ntk-3000", "tangent kernel and smallest eigenvalue, N=6"),
        ("robust-ntk", "ntk robustness"),
        ("text-profile", "minilm, 6 tokens"),
        ("text-memory", "profile, minilm"),
        ("text-loop", "minilm-sentiment, 6 rewritten texts"),
        ("text-swaps", "swaps, minilm, 6 tokens"),
        ("text-shortfall", "swaps, minilm, 1 texts"),
    ],
)
def test_quick_cases_print_their_rows_and_write_nothing(
    name: str, row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([name, "--quick"], _in_process, tmp_path / "out.md") == 0
    printed = capsys.readouterr()
    assert f"\n| {row}, " in printed.out
    assert "Targets" not in printed.out
    assert f"[1/1] {name}" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_the_program_runs_its_jobs_in_processes_of_their_own() -> None:
    command = [sys.executable, "-m", "benchmarks", "rf-10000", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| rf, n=8, d=6 | 18.4 kB" in done.stdout
    assert "layered_ours data=gaussian n=8" in done.stderr


def _stand_in(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome | Exception) -> None:
    """Replace the cases by ones that return given outcomes or raise given errors."""

    def case(outcome: Outcome | Exception) -> Case:
        def run(child: Any, size: Any) -> Outcome:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return Case("a stand-in", run, {}, {})

    cases = {f"case-{k}": case(outcome) for k, outcome in enumerate(outcomes)}
    monkeypatch.setattr(program, "CASES", cases)


def test_a_target_that_fails_gives_exit_code_1_and_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _stand_in(monkeypatch, _OUTCOME)
    results = tmp_path / "out.md"
    assert program.main([], results=results) == 1
    assert "FAILED b: at least 5, got 4" in capsys.readouterr().err
    assert "**no**" in results.read_text()
    assert program.main(["--quick"], results=tmp_path / "none.md") == 0
    assert not (tmp_path / "none.md").exists()


def test_all_targets_held_give_exit_code_0_and_a_page_only_for_a_run_of_all_cases(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = Outcome(_OUTCOME.rows, _OUTCOME.targets[:1])
    _stand_in(monkeypatch, good, good)
    results = tmp_path / "out.md"
    assert program.main(["case-1"], results=results) == 0
    assert not results.exists()
    assert program.main([], results=results) == 0
    assert "## Targets" in results.read_text()


def test_the_page_names_the_cases_that_were_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Outcome(_OUTCOME.rows, _OUTCOME.targets[:1])
    _stand_in(monkeypatch, good, ChildError("too long"))
    results = tmp_path / "out.md"
    assert program.main(["--skip", "case-1"], results=results) == 0
    assert "Not measured in this run: case-1." in results.read_text()
    assert program.main(["--skip", "case-7"], results=results) == 2
    assert "unknown case 'case-7'" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--quick"]])
def test_a_case_that_does_not_finish_fails_and_the_others_still_run(
    options: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _stand_in(monkeypatch, ChildError("a job ended with exit code 9"), Outcome(_OUTCOME.rows))
    assert program.main(options, results=tmp_path / "out.md") == 1
    printed = capsys.readouterr()
    assert "FAILED case-0: the case runs, got a job ended with exit code 9" in printed.err
    assert "## First" in printed.out


def test_a_stopped_run_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, results, folder = Outcome(_OUTCOME.rows, _OUTCOME.targets[:1]), tmp_path / "out.md", tmp_path / "kept"
    _stand_in(monkeypatch, good, ChildError("stopped"))
    assert program.main([], results=results, folder=folder) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["case-0.json", "case-1.json"]
    _stand_in(monkeypatch, ChildError("run again"), good)
    assert program.main(["--resume"], results=results, folder=folder) == 0
    assert "[1/2] case-0: kept from an earlier run" in capsys.readouterr().err
    assert results.read_text().count("| long") == 2
    assert program.main([], results=results, folder=folder) == 1  # without it everything is measured again
    monkeypatch.setattr(kept, "state", lambda: "other code")
    assert program.main(["--resume"], results=results, folder=folder) == 1


def test_an_outcome_is_kept_as_it_is_and_damage_is_noticed(tmp_path: Path) -> None:
    kept.save(tmp_path, "one", "state", _OUTCOME)
    assert kept.load(tmp_path, "one", "state") == _OUTCOME
    assert kept.load(tmp_path, "one", "other") is None
    assert kept.load(tmp_path, "two", "state") is None
    (tmp_path / "one.json").write_text("{")
    assert kept.load(tmp_path, "one", "state") is None


def test_the_state_is_that_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a")
    first = kept.state(tmp_path)
    assert kept.state(tmp_path) == first
    (tmp_path / "src" / "a.py").write_text("b")
    assert kept.state(tmp_path) != first


def _numbers(job: str, **changes: Any) -> dict[str, Any]:
    """Numbers that meet every target, as a job would return them."""
    costs = {"seconds": 0.1, "slowest": 0.1, "rise": 10**7, "peak": 3 * 10**8, "runs": 1, "threads": 2}
    checks = {"ours_same_weights": 1.0, "published_by_ours": 1e-15, "ours_by_plain": 1e-15, "block_gap": 1e-15}
    values = {
        "S": 1.0,
        "ceiling": 1.2,
        "values": [1.0, 1.1, 0.9],
        "ceilings": [1.5],
        "bounded_seconds": 0.2,
        "words": 3,
    }
    others = {"candidates": 9, "top": "x", "gap": 1e-15, "sample": 3, "count": 5}
    others |= {"losses": {"a": 0.5, "b": 0.1}, "interpolates": True}
    others |= {"trace": 3.0, "residual": 1e-9, "fit": 1e-12}
    others |= {"value": 1.0, "share": 1e-5, "products": [40, 50], "early": 30, "status": "converged"}
    others |= {"done": 5000, "planned": 5000, "checks": 4, "pass": 4, "digest": "0" * 64}
    others |= {"tokens": 512, "checked": 8, "word": "w", "best": "b", "short": [0.0, 0.002], "apart": 1e-7}
    efforts = {name: {"ratios": [1.1, 1.2], "seconds": 1.0} for name in ("simple", "quick", "tight")}
    numbers: dict[str, Any] = {**costs, **checks, **values, **others, "efforts": efforts}
    if job.endswith(("published", "loop", "lipschitz_short")):
        numbers |= {"seconds": 50.0, "rise": 10**9}
    return {**numbers, **changes}


@pytest.mark.parametrize(
    ("name", "job", "changes", "claim"),
    [
        ("raf", "attention_published", {"seconds": 29.0}, "at least 300 times faster"),
        ("relu-raf", "attention_published", {"S": 1.0002}, "S at least 0.9999"),
        ("raf", "attention_published", {"published_by_ours": 1e-8}, "both sides agree"),
        ("raf", "attention_published", {"ours_same_weights": 1.1}, "both sides agree"),
        ("rf", "layered_published", {"rise": 10**8}, "at most 1/20 of the published memory"),
        ("rf", "layered_ours", {"values": [1.3, 1.3, 1.2]}, "within 2 standard deviations"),
        ("rf", "layered_published", {"block_gap": 1e-8}, "both sides agree"),
        ("drf", "layered_published", {"seconds": 2.9}, "at least 30 times faster"),
        ("rf-150", "layered_ours", {"seconds": 2.1}, "within 2 s"),
        ("drf-8", "layered_ours", {"peak": 4 * 10**9}, "under 4.0 GB"),
        ("rf-10000", "layered_ours", {"seconds": 8.1}, "within 8 s"),
        ("profile", "profile", {"seconds": 61.0}, "within 60 s"),
        ("vocabulary", "vocabulary", {"gap": 1e-9}, "to 1e-10"),
        ("ceilings", "ceilings", {"efforts": {"tight": {"ratios": [1.1, 1.31], "seconds": 1.0}}}, "between 1 and 1.3"),
        ("ceilings", "ceilings", {"efforts": {"quick": {"ratios": [0.9, 1.2], "seconds": 1.0}}}, "between 1 and 1.5"),
        ("accuracy", "accuracy", {"gap": 1e-11}, "at most 1e-12"),
        ("generalization", "generalization_published", {"seconds": 1.9}, "at least 20 times faster"),
        ("generalization", "generalization_ours", {"losses": {"a": 0.5002, "b": 0.1}}, "equal or lower"),
        ("generalization-raf", "generalization_ours", {"seconds": 61.0}, "within 60 s"),
        ("generalization-rf", "generalization_ours", {"peak": 9 * 10**9}, "under 8.0 GB"),
        ("generalization-rf", "generalization_ours", {"interpolates": False}, "every training label is fitted"),
        ("lipschitz", "lipschitz_published", {"seconds": 1.4}, "at least 15 times faster"),
        ("lipschitz", "lipschitz_ours", {"values": [1.0, 1.1002, 0.9]}, "the same values, to 1e-4"),
        ("lipschitz-short", "lipschitz_short", {"seconds": 0.5}, "times faster"),
        ("lipschitz-short", "lipschitz_short", {"values": [1.0, 1.1002, 0.9]}, "the same values, to 1e-4"),
        ("lipschitz-4096", "lipschitz_long", {"seconds": 121.0}, "within 120 s"),
        ("lipschitz-4096", "lipschitz_long", {"peak": 3 * 10**9}, "under 3.0 GB"),
        ("lipschitz-16384", "lipschitz_long", {"share": 2e-4}, "converges to 1e-4"),
        ("figures-smooth-paper", "lab_figures", {"seconds": 601.0}, "within 600 s"),
        ("start", "command", {"seconds": 4.1}, "within"),
        ("start", "pool", {"seconds": 2.1}, "within 2 s"),
        ("ntk", "ntk_published", {"seconds": 4.9}, "at least 50 times faster"),
        ("ntk", "ntk_ours", {"gap": 1e-9}, "agreeing to 1e-10"),
        ("ntk", "ntk_published", {"trace": 3.1}, "agreeing to 1e-10"),
        ("ntk-3000", "ntk_large", {"seconds": 61.0}, "within 60 s"),
        ("robust-rf", "robustness_large", {"peak": 7 * 10**9}, "under 6.0 GB"),
        ("robust-ntk", "robustness_large", {"seconds": 11.0}, "within 10 s"),
        ("text-profile", "text_profile", {"seconds": 31.0}, "within 30 s"),
        ("text-profile", "text_loop", {"seconds": 0.14}, "at least 1.5 times faster than word by word"),
        ("text-profile", "text_profile", {"values": [1.0, 1.1002, 0.9]}, "the same values, to 1e-4"),
        ("text-memory", "text_memory", {"peak": 4 * 10**9}, "under 4.0 GB"),
        ("text-memory", "text_memory", {"tokens": 511}, "512 tokens"),
        ("text-swaps", "text_swaps", {"seconds": 10.1}, "within 10 s"),
        ("text-exhaustive", "text_swaps", {"seconds": 181.0}, "within 180 s"),
        ("text-shortfall", "swaps_shortfall", {"short": [0.0, 0.011]}, "within 1% of the best of all"),
        ("text-shortfall", "swaps_shortfall", {"apart": 2e-4}, "agrees to 1e-4"),
        ("runner", "lab_empty", {"seconds": 10.1}, "under 2 ms per trial"),
        ("runner", "lab_empty", {"done": 4999}, "every trial is stored"),
        ("runner", "lab_cluster", {"seconds": 10.1}, "under 2 ms per trial, the start of the workers excluded"),
        ("runner", "lab_cluster", {"done": 4999}, "every trial is stored"),
        ("figures-quick", "lab_figures", {"seconds": 181.0}, "within 180 s"),
        ("figures-paper", "lab_figures", {"peak": 5 * 10**9}, "under 4.0 GB together"),
        ("figures-paper", "lab_figures", {"done": 4998}, "every trial finishes"),
        ("figures-paper", "lab_figures", {"pass": 3}, "every check of the code passes"),
    ],
)
def test_every_target_is_checked(name: str, job: str, changes: dict[str, Any], claim: str) -> None:
    case = CASES[name]
    assert failures([case.run(lambda job, **_: _numbers(job), case.full)]) == []
    outcome = case.run(lambda run, **_: _numbers(run, **(changes if run == job else {})), case.full)
    failed = failures([outcome])
    assert failed
    assert all(claim in target.claim for target in failed)


@pytest.mark.parametrize("more", [0.0, 0.5])
def test_growth_is_fitted_and_its_page_is_written(more: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def child(job: str, place: int, sizes: list[int]) -> dict[str, Any]:
        exponent = growth.KERNELS[place].stated + more
        flat = [max(size, sizes[-1] / 10) for size in sizes]  # what costs a call alone does not count
        return {"seconds": [1e-9 * size**exponent for size in flat]}

    (tmp_path / "images").mkdir()
    page = tmp_path / "growth.md"
    page.write_text("before\n<!-- measured -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(growth, "PAGE", page)
    outcome = growth.measured(child, CASES["growth"].full)
    assert len(failures([outcome])) == (len(growth.KERNELS) if more else 0)
    for row, kernel in zip(outcome.rows, growth.KERNELS, strict=True):
        assert float(row.cells["exponent, last decade"]) == pytest.approx(kernel.stated + more, abs=0.01)
    written = page.read_text(encoding="utf-8")
    assert written.startswith("before\n<!-- measured -->\n\n| kernel ")
    assert written.endswith(" |\n\n<!-- end -->\nafter\n")
    assert "old" not in written
    assert (tmp_path / "images" / "growth.png").stat().st_size > 1000


def test_trials_of_figures_are_kept_in_the_given_folder_in_place_of_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laboratory, "FOLDER", tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "old").write_text("old")
    for _ in range(2):  # the second does not find the trials of the first
        got = JOBS["lab_figures"](names=["fig2-drf"], scale="quick", workers=1, trials=1, keep="here")
        assert got["done"] == got["planned"] > 0
    with Store(tmp_path / "here" / "store.sqlite", readonly=True) as store:
        assert len(list(store.rows())) == got["done"]
    assert not (tmp_path / "here" / "old").exists()


def _sweep(seconds: float, digest: str = "a") -> Any:
    return lambda job, workers, **_: {"seconds": seconds if workers == 2 else 17.0, "digest": digest * workers}


def test_the_targets_of_two_workers_are_checked() -> None:
    case = CASES["workers"]
    claims = [target.claim for target in failures([case.run(_sweep(10.1), case.full)])]
    assert claims == ["at least 1.7 times as fast", "the same numbers, bit for bit"]
    assert failures([case.run(_sweep(10.0, ""), case.full)]) == []


def test_the_targets_of_an_audit_are_checked() -> None:
    case = CASES["audit"]
    shares = {"accuracy": 0.8, "robust": 0.1, "flips": 0.9, "passes": 9, "measured": 200}
    good = {1: {"seconds": 400.0, "digest": "a", **shares}, 2: {"seconds": 210.0, "digest": "a", **shares}}
    assert failures([case.run(lambda job, workers, **_: good[workers], case.full)]) == []
    bad = {1: good[1], 2: {**good[2], "seconds": 301.0, "digest": "b", "measured": 199}}
    claims = [target.claim for target in failures([case.run(lambda job, workers, **_: bad[workers], case.full)])]
    assert [claim.split(" ")[0] for claim in claims] == ["within", "at", "the", "every"]


def test_the_targets_of_flips_are_checked() -> None:
    case = CASES["text-flips"]

    def sides(ours: float, found: bool = True, tried: int = 8) -> Any:
        texts = [{"seconds": 2.0, "passes": 30, "flip": True}, {"seconds": 4.0, "passes": 90, "flip": False}]
        mine = [
            {"seconds": ours, "passes": 9, "flip": found, "tried": tried},
            {"seconds": 0.75, "passes": 91, "flip": False, "tried": 90},
        ]
        return lambda job, **_: {"greedy": texts, "ours": mine}

    assert failures([case.run(sides(0.4), case.full)]) == []
    assert [one.claim for one in failures([case.run(sides(0.5), case.full)])] == [
        "5 times the texts per second of greedy search"
    ]
    assert "no flip is missed" in [one.claim for one in failures([case.run(sides(0.4, False), case.full)])]
    assert [one.claim for one in failures([case.run(sides(0.4, tried=101), case.full)])] == [
        "98% of the flips within 100 tries"
    ]


def test_the_targets_of_searches_are_checked() -> None:
    case, got = CASES["text-loop"], {"plain": 3.0, "ours": 2.0, "apart": 1e-6, "passes": 100}
    assert failures([case.run(lambda job, **_: got, case.full)]) == []
    slow = got | {"ours": 2.1, "apart": 1e-3}
    assert len(failures([case.run(lambda job, **_: slow, case.full)])) == 2
    case = CASES["text-tries"]
    for share, missed in ((0.985, 0), (0.97, 1)):
        shares = {"a class": [1.0, share, share], "b pooled": [share, share, share - 0.001]}
        assert len(failures([case.run(lambda job, s=shares, **_: {"shares": s}, case.full)])) == missed
    case, waits = CASES["serve"], {"colours": 1.9, "swaps": 1.9, "p95": 0.19, "looks": 9, "answered": 100}
    assert failures([case.run(lambda job, **_: waits, case.full)]) == []
    for name, value in {"colours": 2.1, "swaps": 2.1, "p95": 0.21, "answered": 99}.items():
        assert len(failures([case.run(lambda job, w=waits | {name: value}, **_: w, case.full)])) == 1


@pytest.mark.parametrize(("name", "published"), [("raf-lbfgs", 99.9), ("relu-raf-lbfgs", 59.9)])
def test_the_targets_against_good_baselines_are_checked(name: str, published: float) -> None:
    case = CASES[name]

    def sides(baseline: float, S: float, published: float) -> Any:
        both = {"baseline": baseline, "ours": 0.1, "whole": 9.0, "S": {"baseline": 1.0, "ours": S, "whole": 1.0}}
        got = both | {"peak": {"single": 1e11, "double": 5e10, "traffic": 4e10}}
        return lambda job, **_: {"seconds": published} if job == "attention_published" else got

    assert failures([case.run(sides(0.4, 1.0, published + 0.2), case.full)]) == []
    for wrong in ((0.39, 1.0, published + 0.2), (0.4, 0.999, published + 0.2), (0.4, 1.0, published)):
        assert len(failures([case.run(sides(*wrong), case.full)])) == 1


def test_greedy_search_finds_a_flip_if_there_is_one() -> None:
    both = JOBS["flips_compared"](count=2, tokens=(8, 10), candidates="near:10", threads=1)
    assert [one["flip"] for one in both["greedy"]] == [one["flip"] for one in both["ours"]]


def test_two_workers_give_the_numbers_of_one() -> None:
    one, two = (JOBS["lab_sweep"](count=2, workers=workers) for workers in (1, 2))
    assert one["digest"] == two["digest"]
    assert two["done"] == 2


def test_sides_with_different_numbers_of_threads_are_not_compared() -> None:
    with pytest.raises(ChildError, match="1 and 2 threads"):
        CASES["raf"].run(lambda job, **_: _numbers(job, threads=1 if job == "attention_ours" else 2), CASES["raf"].full)


@pytest.mark.parametrize(("load", "busy"), [(None, False), (0.1, False), (1.5, True)])
def test_a_busy_machine_is_mentioned(
    load: float | None,
    busy: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _stand_in(monkeypatch, Outcome(_OUTCOME.rows))
    monkeypatch.setattr(program, "load", lambda: load)
    assert program.main([], results=tmp_path / "out.md") == 0
    assert ("busy (load 1.5)" in capsys.readouterr().err) == busy
    assert ("Load before the run" in (tmp_path / "out.md").read_text()) == (load is not None)
