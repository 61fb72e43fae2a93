"""Write what was measured into docs/reproduction.md, between its marks: claims, verdicts, scale, trials and time.

Run it as ``python tools/reproduction.py RESULTS [RESULTS ...]`` with folders that `wordsway reproduce` wrote; of a
figure that several hold, the last counts. Figures that none holds keep what the page says of them. The pictures go to
docs/images.
"""

import json
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

from PIL import Image

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "reproduction.md"
VERDICTS = {True: "holds", False: "**does not hold**", None: "cannot tell"}


def section(folder: Path, told: dict[str, Any]) -> str:
    """The generated part of a figure: its picture, a table of its claims, and what the run was."""
    name = told["name"]
    lines = [f"![{told['title']}](images/{name}.png)", "", "| claim | measured | verdict |", "|---|---|---|"]
    lines += [f"| {one['claim']} | {one['measured']} | {VERDICTS[one['holds']]} |" for one in told["verdicts"]]
    facts = told["facts"]
    run = f"{facts['scale']} scale, {told['finished']:,} of {told['asked']:,} trials"
    return "\n".join([*lines, "", f"`{told['command']}`: {run}, {spent(folder, name)} of one core."])


def spent(folder: Path, name: str) -> str:
    """The time that the trials of a figure took together."""
    with sqlite3.connect(f"file:{folder / 'store.sqlite'}?mode=ro", uri=True) as store:
        (seconds,) = store.execute("SELECT sum(seconds) FROM trials WHERE experiment = ?", (name,)).fetchone()
    return "no time" if not seconds else f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def _shrink(source: Path, target: Path) -> None:
    """A picture with as many colours as a plot needs, a quarter of the size."""
    with Image.open(source) as picture:
        picture.convert("RGB").quantize(128).save(target, optimize=True)


def main(folders: list[str]) -> None:
    """Fill the page."""
    page = PAGE.read_text(encoding="utf-8")
    names = re.findall(r"<!-- (\S+) -->\n", page)
    for place in map(Path, folders):
        for path in sorted(place.glob("*.json")):
            told = json.loads(path.read_text(encoding="utf-8"))
            name = told["name"]
            if name not in names:
                sys.exit(f"{name} must have its marks in {PAGE.name}: add a section for it")
            _shrink(place / f"{name}.png", DOCS / "images" / f"{name}.png")
            before, mark, rest = page.partition(f"<!-- {name} -->\n")
            _, end, after = rest.partition("<!-- end -->")
            page = f"{before}{mark}{section(place, told)}\n{end}{after}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
