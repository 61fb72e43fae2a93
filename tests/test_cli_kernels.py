"""`wordsway ntk` and `wordsway robustness`: records with the promised keys, tables, and one line for every mistake."""

import json
from typing import Any

import pytest

from wordsway.cli import main

NTK = ["ntk", "--samples", "12", "--width", "6"]
ROBUST = ["robustness", "ntk", "--samples", "12", "--d", "8", "--width", "5"]


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def _records(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    code, out, _ = _run([*arguments, "--json"], capsys)
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_ntk_prints_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = _records([*NTK, "--depth", "2", "--trials", "2"], capsys)
    keys = {"samples", "width", "depth", "parameters", "smallest_eigenvalue", "residual", "seconds"}
    assert set(first) >= keys
    assert (first["samples"], first["width"], first["depth"], first["parameters"]) == (12, 6, 2, 42)
    assert (first["status"], first["seed"], second["seed"]) == ("regular", 0, 1)
    (alone,) = _records([*NTK, "--depth", "2", "--seed", "1"], capsys)
    assert alone["smallest_eigenvalue"] == second["smallest_eigenvalue"]


def test_one_block_has_its_own_parameters_and_may_be_singular(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = _records([*NTK, "--layer", "2"], capsys)
    assert (block["parameters"], block["status"]) == (6, "singular")  # 12 samples, 6 parameters
    (whole,) = _records([*NTK, "--d", "4"], capsys)
    assert (whole["d"], whole["parameters"]) == (4, 4 * 6 + 6 * 6 + 6)


@pytest.mark.parametrize("kind", ["rf", "ntk"])
def test_robustness_prints_the_keys(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["robustness", kind, "--samples", "12", "--d", "8", "--width", "40", "--trials", "2"]
    first, second = _records(arguments, capsys)
    keys = {"kind", "samples", "d", "width", "activation", "seed", "sensitivity", "seconds"}
    assert set(first) >= keys
    assert (first["kind"], first["samples"], first["d"], first["width"], first["seed"]) == (kind, 12, 8, 40, 0)
    assert first["fit"] < 1e-8
    assert first["sensitivity"] != second["sensitivity"]
    told = _records([*arguments, "--terms"], capsys)[0]
    assert told["sensitivity"] == first["sensitivity"] <= told["bound"]


def test_images_bring_their_own_dimension_and_labels(capsys: pytest.CaptureFixture[str]) -> None:
    (kernel,) = _records(["ntk", "--samples", "20", "--width", "12", "--data", "digits"], capsys)
    assert (kernel["d"], kernel["data"], kernel["status"]) == (64, "digits", "regular")
    arguments = ["robustness", "rf", "--samples", "20", "--width", "60", "--data", "digits"]
    (found,) = _records(arguments, capsys)
    assert (found["d"], found["data"]) == (64, "digits")
    assert "rf features, N=20, digits, width 60" in _run(arguments, capsys)[1]


def test_tables_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tangent kernel, N=12, d=6, width 6, 3 weights, tanh" in _run(NTK, capsys)[1]
    out = _run([*ROBUST, "--terms"], capsys)[1]
    assert "ntk features, N=12, d=8, width 5, tanh" in out
    assert "lambda min" in out


def test_trials_that_have_ended_are_not_lost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from wordsway import kernels

    real, seen = kernels.smallest_eigenvalue, []

    def second_fails(*arguments: Any, **options: Any) -> Any:
        seen.append(1)
        if len(seen) > 1:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(kernels, "smallest_eigenvalue", second_fails)
    code, out, _ = _run([*NTK, "--trials", "3"], capsys)
    assert code == 130
    assert len([line for line in out.splitlines() if line.strip().startswith("0")]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*NTK, "--samples", "0"], "samples must be an integer >= 1, got 0"),
        ([*NTK, "--width", "0"], "width must be an integer >= 1, got 0"),
        ([*NTK, "--depth", "0"], "depth must be an integer >= 1, got 0"),
        ([*NTK, "--layer", "3"], "layer must be from 0 to 2, got 3"),
        ([*NTK, "--activation", "tan"], "unknown activation 'tan'"),
        ([*NTK, "--trials", "0"], "trials must be an integer >= 1, got 0"),
        ([*NTK, "--samples", "9000000"], "kernel needs"),
        (["robustness", "rff", *ROBUST[2:]], "did you mean 'rf'"),
        ([*ROBUST, "--activation", "relu"], "which relu does not have"),
        ([*ROBUST, "--width", "1"], "12 samples need at least as many features, got 8"),
        ([*ROBUST, "--data", "digits"], "d must be that of the images in digits, got 8: leave it out"),
        ([*ROBUST, "--data", "digit"], "did you mean 'digits'"),
        (
            ["robustness", "rf", "--samples", "9", "--width", "20"],
            "d must be given for gaussian inputs: only images bring their own",
        ),
        ([*ROBUST, "--seed", "-1"], "seed must be an integer"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = _run([*arguments, "--json"], capsys)
    assert code == 1
    assert out == ""
    assert error.count("\n") == 1
    assert words in error
