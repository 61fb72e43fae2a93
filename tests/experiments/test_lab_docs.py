"""The page on the laboratory: its example runs as a script and prints what it says, and it knows every figure."""

import re
import subprocess
import sys
from pathlib import Path

from wordsway.experiments.store import Store
from wordsway.figures import all_figures

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "laboratory.md").read_text(encoding="utf-8")


def test_the_example_prints_what_follows_it_and_finds_its_trials_stored_the_second_time(tmp_path: Path) -> None:
    code, expected = re.findall(r"```(?:python|text)\n(.*?)```", PAGE, flags=re.DOTALL)
    script = tmp_path / "scores.py"
    script.write_text(code, encoding="utf-8")
    for first_line in ("12 trials run, 0 were stored", "0 trials run, 12 were stored"):
        done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == expected.replace("12 trials run, 0 were stored", first_line)


def test_every_figure_has_a_row() -> None:
    section = PAGE.split("## The figures")[1].split("## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(all_figures()) == {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)}


def test_the_columns_of_the_store_are_those_of_the_page(tmp_path: Path) -> None:
    table = PAGE.split("| column of `trials` | meaning |")[1].split("\n\n")[0]
    shown = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    with Store(tmp_path / "store.sqlite") as store:
        columns = [row[1] for row in store._db.execute("PRAGMA table_info(trials)")]
    assert sorted(shown) == sorted(columns)
