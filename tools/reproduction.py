"""Write measurements into docs/reproduction.md, between its marks: claims, verdicts, scale, trials, time, grids.

Run it as ``python tools/reproduction.py RESULTS [RESULTS ...]`` with folders that `wordsway reproduce` wrote; of a
figure that several hold, the last counts. Figures that none holds keep their sections. The pictures are written to
docs/images. The table of all figures is made from the sections of the page, and from the statements below. Figures of
another model, such as mpnet, have sections of their own: fig2-rf-mpnet.
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

from wordsway.experiments.experiment import SCALES, Experiment, Parameters, RunConfig, Verdict, tally, worst
from wordsway.experiments.store import DONE, Row, Store
from wordsway.figures import all_figures

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "reproduction.md"
MACHINE = "2 cores without a GPU"  # change it with the results
WIDTH = 128
SYMBOLS = {"samples": "N", "widths": "k"}
_MET = {True: "met", False: "not met", None: "cannot tell"}
ALL = ("<!-- all figures -->\n", "<!-- end of all figures -->")
HEAD = "| figure | what the paper says | measured | verdict | main difference from the published code |"

STATEMENTS = {  # by figure: what the paper, poster or slides state, and the main difference from the published code
    "fig2-rf": ("S of random features is of order n^(-1/2)", "V is not stored; the moved word stays in the ball"),
    "fig2-drf": ("deep random features fall with n in the same way", "as for fig2-rf"),
    "fig3-raf": (
        "S of softmax attention is above 1 at any n",
        "a response in O(n d); the moved word stays in the ball",
    ),
    "fig3-relu": ("with ReLU it is smaller and falls with n", "basins of the ReLU landscape are searched separately"),
    "theorem51": (
        "in contexts of n = c d / log^4 d words, one word captures a constant share of the rows",
        "not a figure of the paper",
    ),
    "m-words": ("m words move rf by O((m / n)^(1/2))", "not a figure of the paper"),
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
    "ntk-lambda": ("the tangent kernel is regular once parameters exceed samples", "images of MNIST are added"),
    "ntk-loss": ("minimum over-parameterization is enough to fit", "trained with Adam"),
    "ntk-flow": (
        "L(t) <= L(0) exp(-lambda t / 2)",
        "the loss is half the sum of squares; the flow of the network itself is integrated",
    ),
    "ntk-pyramid": ("one wide layer and a pyramid are enough", "Gaussian starts, trained with Adam"),
    "ntk-chain": (
        "J J^T >~ J_FB J_FB^T >~ J~_FB J~_FB^T ~ I_n",
        "means are those over the given inputs",
    ),
    "ntk-halves": (
        "f_NN with two halves is close to f_NTK, more robust for even activations",
        "not a figure of the slides; f_NN itself is trained",
    ),
    "robust-rf": ("S = Omega(N^(1/6)) for any k, where E phi' is not 0", "gelu and relu are added"),
    "robust-ntk": (
        "S = O(sqrt(N d / p)) for even activations, up to logarithms",
        "the second derivative of tanh is corrected",
    ),
}


def section(folder: Path, summary: dict[str, Any]) -> str:
    """Return the generated part of a figure: its picture, a table of its claims, and the run."""
    name = summary["name"]
    lines = [
        f"![{summary['title']}](images/{section_name(summary)}.png)",
        "",
        "| claim | measured | verdict |",
        "|---|---|---|",
    ]
    for one in map(Verdict.from_dict, summary["verdicts"]):
        source = f". Source: {one.source}" if one.source else ""
        lines.append(f"| {one.claim}{source} | {one.details} | {one.word} |")
    if summary.get("assumptions"):
        lines += ["", "What the theorems assume, at these sizes:", ""]
        lines += [
            f"- {_MET[one['met']]}: {one['theorem']}, {one['assumption']}: {one['measured']}"
            for one in summary["assumptions"]
        ]
    figure, config = all_figures()[name], config_of(summary["command"])
    trials = f"{summary['finished']:,} of {summary['asked']:,} trials"
    run = f"`{summary['command']}`: {config.scale} scale, {trials}, {time_spent(folder, figure, config)}, on {MACHINE}."
    wrapped = (textwrap.wrap(text, WIDTH, break_on_hyphens=False) for text in (run, grids(figure, config)))
    return "\n".join([*lines, "", *(line for text in wrapped for line in text)])


def section_name(summary: dict[str, Any]) -> str:
    """Return the name of the section of a figure: its own, with that of the model if one was chosen."""
    model = config_of(summary["command"]).model
    return summary["name"] if model is None else f"{summary['name']}-{model}"


def config_of(command: str) -> RunConfig:
    """Return the configuration of a command of `wordsway reproduce`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", default="quick")
    parser.add_argument("--model")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seed", type=int, default=0)
    return RunConfig(**vars(parser.parse_known_args(shlex.split(command))[0]))


def time_spent(folder: Path, figure: Experiment, config: RunConfig) -> str:
    """Return the time that the trials of a figure took together, and which figure they belong to."""
    with Store(folder / "store.sqlite", readonly=True) as store:
        rows = list(store.rows(states=(DONE,), trials=set(figure.planned(config))))
    own = [row for row in rows if row.trial.experiment == figure.name]
    others = " and ".join(other.name for other in figure.needs)
    if others and not own:
        return f"reads the trials of {others} ({_time(rows)} of one core)"
    shared = f"those of {others} among them, " if others else ""
    return f"{shared}{_time(own)} of one core{' for the others' if others else ''}"


def _time(rows: Sequence[Row]) -> str:
    seconds = sum(row.seconds or 0 for row in rows)
    if seconds < 1:
        return "under 1 s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def grids(figure: Experiment, config: RunConfig) -> str:
    """Return the grid of the scale that is shown, where it differs from that of the other scale, and that one."""
    if config.trials is not None or config.model is not None:
        return ""
    other = next(scale for scale in SCALES if scale != config.scale)
    source = next((one for one in (figure, *figure.needs) if list(one.grid(config))), figure)
    points = {scale: list(source.grid(RunConfig(scale))) for scale in (config.scale, other)}
    names = dict.fromkeys(key for point in points[config.scale] for key in point)
    different = [name for name in names if len({_values(some, name) for some in points.values()}) > 1]
    texts = []
    for scale, some in points.items():
        count = source.trials[scale]
        parts = [f"{SYMBOLS.get(name, name)} = {_values(some, name)}" for name in different]
        texts.append("; ".join([*parts, f"{count} trials per point" if count > 1 else "1 trial per point"]))
    if texts[0] == texts[1]:
        return f"The {other} scale is the same."
    return f"Grid: {texts[0]}. At {other} scale: {texts[1]}."


def _values(points: Sequence[Parameters], name: str) -> str:
    """Return the values of a parameter, separately for each kind of data where they differ."""
    by_data: dict[Any, dict[Any, None]] = {}
    for point in points:
        value = point.get(name)
        values = [int(part) for part in value.split()] if isinstance(value, str) and value[:1].isdigit() else [value]
        by_data.setdefault(point.get("data"), {}).update(dict.fromkeys(values))

    def shown(values: Sequence[Any]) -> str:
        ordered = sorted(values) if all(isinstance(one, int) for one in values) else values
        return ", ".join(f"{one:,}" if isinstance(one, int) and one >= 10_000 else str(one) for one in ordered)

    lists = {data: shown(list(values)) for data, values in by_data.items()}
    if len(set(lists.values())) == 1:
        return next(iter(lists.values()))
    return " and ".join(f"{values} ({data})" for data, values in lists.items())


def overview(page: str) -> str:
    """Return the table of all figures, in the order of the page."""
    lines, every = [HEAD, "|---|---|---|---|---|"], list[str]()
    for name, title, part in re.findall(r"\n### (\S+): (.*)\n(?s:.*?)<!-- \1 -->\n((?s:.*?))<!-- end -->", page):
        statement, difference = STATEMENTS[name] if name in STATEMENTS else STATEMENTS[name.rpartition("-")[0]]
        verdicts = [row.split(" | ")[-1].removesuffix(" |") for row in part.splitlines() if row.startswith("| ")][1:]
        every += verdicts
        scale = "".join(re.findall(r"`: (\w+) scale", part))
        link = f"[{name}](#{_anchor(f'{name}: {title}')})"
        lines.append(f"| {link} | {statement} | {tally(verdicts)} ({scale} scale) | {worst(verdicts)} | {difference} |")
    return "\n".join([*lines, "", f"All claims: {tally(every)}."])


def _anchor(title: str) -> str:
    """Return the address of a heading within its page."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def between(text: str, marks: tuple[str, str], new: str) -> str:
    """Return a text with something new between two marks."""
    before, first, rest = text.partition(marks[0])
    _, last, after = rest.partition(marks[1])
    if not first or not last:
        sys.exit(f"{PAGE.name} must have {marks[0].strip()} and {marks[1]}: add them")
    return f"{before}{first}{new}\n{last}{after}"


def _shrink(source: Path, target: Path) -> None:
    """Write a picture with as many colours as a plot needs, a quarter of the size."""
    with Image.open(source) as picture:
        picture.convert("RGB").quantize(128).save(target, optimize=True)


def main(folders: list[str]) -> None:
    """Fill the page."""
    page = PAGE.read_text(encoding="utf-8")
    names = re.findall(r"<!-- (\S+) -->\n", page)
    for folder in map(Path, folders):
        for path in sorted(folder.glob("*.json")):
            summary = json.loads(path.read_text(encoding="utf-8"))
            name = section_name(summary)
            if name not in names or summary["name"] not in STATEMENTS:
                sys.exit(f"{name} must have its marks in {PAGE.name} and a line in STATEMENTS: add a section for it")
            _shrink(path.with_suffix(".png"), DOCS / "images" / f"{name}.png")
            page = between(page, (f"<!-- {name} -->\n", "<!-- end -->"), section(folder, summary))
    PAGE.write_text(between(page, ALL, overview(page)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
