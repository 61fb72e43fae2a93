"""Write what was measured into docs/reproduction.md, between its marks: claims, verdicts, scale, trials, time, grids.

Run it as ``python tools/reproduction.py RESULTS [RESULTS ...]`` with folders that `wordsway reproduce` wrote; of a
figure that several hold, the last counts. Figures that none holds keep what the page says of them. The pictures go to
docs/images. The table of all figures is made from the sections of the page, and from what is written here by hand.
"""

import argparse
import json
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from wordsway.experiments.experiment import SCALES, VERDICTS, Experiment, Parameters, RunConfig
from wordsway.experiments.store import DONE, Store
from wordsway.figures import all_figures

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "reproduction.md"
MACHINE = "2 cores without a GPU"  # change it with the results
WIDTH = 128
SYMBOLS = {"samples": "N", "widths": "k"}
ALL = ("<!-- all figures -->\n", "<!-- end of all figures -->")
HEAD = "| figure | what the paper says | measured | verdict | main difference from the published code |"

SAID = {  # by figure: what the paper, poster or slides say, and the main difference from the published code
    "fig2-rf": ("S of random features is of order n^(-1/2)", "V is not stored; the moved word stays in the ball"),
    "fig2-drf": ("deep random features fall with n in the same way", "as for fig2-rf"),
    "fig3-raf": (
        "S of softmax attention is above 1 at any n",
        "a response in O(n d); the moved word stays in the ball",
    ),
    "fig3-relu": ("with ReLU it is smaller and falls with n", "a basin of the ReLU landscape is searched on its own"),
    "fig1": ("one other word changes attention and answers", "smaller models: MiniLM and SmolLM2"),
    "fig3-layers": (
        "attracting attention moves all layers, noise far less",
        "MiniLM and SmolLM2; a mean of draws of noise",
    ),
    "fig3-scores": ("the first head looks at the moved token", "MiniLM and SmolLM2"),
    "fig4": ("rf cannot learn from a sentence about its neighbour, raf can", "N x N kernels, no p x p projector"),
    "fig5": ("a penalty on gamma, for the error", "the penalty is that of (147); the script normalises a vector in it"),
    "fig6": ("the same, for the alignment", "as for fig5"),
    "fig7": ("each alignment loss is best on its own training", "as for fig5"),
    "appendix-e": ("one word moves re-trained rf by O(sqrt(N / n))", "not a figure of the paper"),
    "smooth-real": (
        "on real data the constant grows like n^(1/4)",
        "Lanczos on the tangent, not a power iteration on the output; no guessed slice of a fused QKV weight",
    ),
    "smooth-adversarial": ("the worst case grows like n^(1/2)", "as for smooth-real"),
    "smooth-bounds": ("lower and upper bounds over a ball", "a sharper upper bound, a lower one for every V"),
    "meanfield": ("on measures, bounds exponential in R^2", "not measured in the poster"),
    "ntk-lambda": ("the tangent kernel is regular once parameters exceed samples", "digits are added"),
    "ntk-loss": ("minimum over-parameterization is enough to fit", "trained with Adam"),
    "ntk-flow": ("L(t) <= L(0) exp(-lambda t / 2)", "the flow of the network itself is integrated"),
    "robust-rf": ("S = Omega(N^(1/6)) for any k, where E phi' is not 0", "digits in place of MNIST and CIFAR-10"),
    "robust-ntk": (
        "S = O(sqrt(N d / p)) for even activations, up to logarithms",
        "the second derivative of tanh is the right one; digits in place of MNIST and CIFAR-10",
    ),
}


def section(folder: Path, told: dict[str, Any]) -> str:
    """The generated part of a figure: its picture, a table of its claims, and what the run was."""
    name = told["name"]
    lines = [f"![{told['title']}](images/{name}.png)", "", "| claim | measured | verdict |", "|---|---|---|"]
    lines += [f"| {one['claim']} | {one['measured']} | {VERDICTS[one['holds']]} |" for one in told["verdicts"]]
    figure, config = all_figures()[name], config_of(told["command"])
    trials = f"{told['finished']:,} of {told['asked']:,} trials"
    run = f"`{told['command']}`: {config.scale} scale, {trials}, {spent(folder, figure, config)}, on {MACHINE}."
    wrapped = (textwrap.wrap(text, WIDTH, break_on_hyphens=False) for text in (run, sizes(figure, config)))
    return "\n".join([*lines, "", *(line for text in wrapped for line in text)])


def config_of(command: str) -> RunConfig:
    """What a command of `wordsway reproduce` asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", default="quick")
    parser.add_argument("--model")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    return RunConfig(**vars(parser.parse_known_args(shlex.split(command))[0]))


def spent(folder: Path, figure: Experiment, config: RunConfig) -> str:
    """The time that the trials of a figure took together, and whose they are."""
    asked = set(figure.planned(config))
    with Store(folder / "store.sqlite", readonly=True) as store:
        rows = [row for row in store.rows(states=(DONE,), trials=asked) if row.seconds is not None]
    mine = [row.seconds for row in rows if row.trial.experiment == figure.name]
    others = " and ".join(other.name for other in figure.needs)
    if others and not mine:
        return f"reads the trials of {others} ({_time(sum(row.seconds or 0 for row in rows))} of one core)"
    shared = f"those of {others} among them, " if others else ""
    return f"{shared}{_time(sum(second or 0 for second in mine))} of one core{' for the others' if others else ''}"


def _time(seconds: float) -> str:
    if seconds < 1:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def sizes(figure: Experiment, config: RunConfig) -> str:
    """The grid of the scale that is shown, where it differs from that of the other scale, and that one."""
    if config.trials is not None or config.model is not None:
        return ""
    other = next(scale for scale in SCALES if scale != config.scale)
    source = next((one for one in (figure, *figure.needs) if list(one.grid(config))), figure)
    grids = {scale: list(source.grid(RunConfig(scale))) for scale in (config.scale, other)}
    names = dict.fromkeys(key for point in grids[config.scale] for key in point)
    apart = [name for name in names if len({_values(points, name) for points in grids.values()}) > 1]
    said = []
    for scale, points in grids.items():
        count = source.trials[scale]
        several = f"{count} trials a point" if count > 1 else "1 trial a point"
        parts = [f"{SYMBOLS.get(name, name)} = {_values(points, name)}" for name in apart]
        said.append("; ".join([*parts, several]))
    if said[0] == said[1]:
        return f"The {other} scale is the same."
    return f"Grid: {said[0]}. At {other} scale: {said[1]}."


def _values(points: Sequence[Parameters], name: str) -> str:
    """The values of a parameter, apart for each kind of data where they are not the same."""
    found: dict[Any, dict[str, None]] = {}
    for point in points:
        value = point.get(name)
        values = [int(part) for part in value.split()] if isinstance(value, str) and value[:1].isdigit() else [value]
        shown = (f"{one:,}" if isinstance(one, int) and one >= 10_000 else str(one) for one in values)
        found.setdefault(point.get("data"), {}).update(dict.fromkeys(shown))
    lists = {data: ", ".join(values) for data, values in found.items()}
    if len(set(lists.values())) == 1:
        return next(iter(lists.values()))
    return " and ".join(f"{values} ({data})" for data, values in lists.items())


def summary(page: str) -> str:
    """The table of all figures, in the order of the page."""
    lines = [HEAD, "|---|---|---|---|---|"]
    for name, title, part in re.findall(r"\n### (\S+): (.*)\n(?s:.*?)<!-- \1 -->\n((?s:.*?))<!-- end -->", page):
        says, difference = SAID[name]
        found = [line.split(" | ")[-1].removesuffix(" |") for line in part.splitlines() if line.startswith("| ")][1:]
        held = sum(verdict == VERDICTS[True] for verdict in found)
        worst = next((said for said in (VERDICTS[False], VERDICTS[None]) if said in found), VERDICTS[True])
        scale = "".join(re.findall(r"`: (\w+) scale", part))
        measured = f"{held} of {len(found)} {'claims hold' if len(found) > 1 else 'holds'} ({scale} scale)"
        lines.append(f"| [{name}](#{_anchor(f'{name}: {title}')}) | {says} | {measured} | {worst} | {difference} |")
    return "\n".join(lines)


def _anchor(title: str) -> str:
    """The address of a heading within its page."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def between(text: str, marks: tuple[str, str], new: str) -> str:
    """A text with something new between two marks."""
    before, first, rest = text.partition(marks[0])
    _, last, after = rest.partition(marks[1])
    if not first or not last:
        sys.exit(f"{PAGE.name} must have {marks[0].strip()} and {marks[1]}: add them")
    return f"{before}{first}{new}\n{last}{after}"


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
            if name not in names or name not in SAID:
                sys.exit(f"{name} must have its marks in {PAGE.name}, and its line in SAID: add a section for it")
            _shrink(place / f"{name}.png", DOCS / "images" / f"{name}.png")
            page = between(page, (f"<!-- {name} -->\n", "<!-- end -->"), section(place, told))
    PAGE.write_text(between(page, ALL, summary(page)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
