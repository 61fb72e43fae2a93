"""`wordsway models`: which models there are, and which are installed, without loading any."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wordsway.cli import main
from wordsway.data import offline
from wordsway.models.transformer import NAMES

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")


def _print(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["models", *arguments])
    assert not ended.value.code
    return capsys.readouterr().out


def _rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _print(["--json"], capsys).splitlines()]


def test_json_has_the_offline_models_and_what_else_may_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows(capsys)
    assert [row["name"] for row in rows] == [*NAMES, None]
    assert [row["kinds"] for row in rows[:3]] == [["bert"], ["llama"], ["gpt2"]]
    assert {"bert", "gpt2", "llama", "qwen2"} <= set(rows[3]["kinds"])
    assert all(row["installed"] and row["install"] is None for row in rows)


@pytest.mark.parametrize(("value", "offline_hub"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_it_says_whether_the_hub_is_used(
    value: str, offline_hub: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert {row["hub_offline"] for row in _rows(capsys)} == {offline_hub}
    assert ("HF_HUB_OFFLINE is set" in _print([], capsys)) is offline_hub


def test_what_is_missing_comes_with_its_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, missing = importlib.util.find_spec, {offline.DECODER.module}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else real(name))
    rows = _rows(capsys)
    assert [row["installed"] for row in rows] == [True, False, True, True]
    assert rows[1]["install"] == offline.DECODER.install
    missing.add("transformers")
    rows = _rows(capsys)
    assert [row["install"] for row in rows] == [
        "pip install 'wordsway[models]'",
        offline.DECODER.install,
        *["pip install 'wordsway[models]'"] * 2,
    ]


def test_the_page_shows_what_it_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    printed = [line.rstrip() for line in _print([], capsys).splitlines()]
    assert "$ wordsway models\n" + "\n".join(printed) in PAGE


def test_transformers_is_not_imported() -> None:
    program = """
import sys
from wordsway.cli import main
try:
    main(["models"])
except SystemExit:
    print(sorted({"transformers", "huggingface_hub", "tokenizers"} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
