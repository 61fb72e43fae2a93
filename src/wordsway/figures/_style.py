"""The style of all figures: panels, curves with bands, theory lines, on a light or a dark page.

Figures are drawn on `matplotlib.figure.Figure` objects, never through pyplot, so that nothing global changes.
Everything here must be called inside `style`, which sets colours and fonts.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, Any

from wordsway.errors import MissingExtra
from wordsway.experiments.claims import Points, curves
from wordsway.experiments.experiment import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes  # the figures annotate by these names
    from matplotlib.figure import Figure as Figure

# Distinguishable by colour-blind readers too, and drawn with different markers
_LIGHT = ("#0072b2", "#d55e00", "#00805c", "#a8477f", "#7a6400", "#4d4d4d")
_DARK = ("#56b4e9", "#ff9d5c", "#2fc79a", "#e79bc6", "#e6d04a", "#b8b8b8")
_INK = {False: "#1b1f24", True: "#e6e8eb"}
_MARKERS = "os^Dvx"
_PANEL = (4.4, 3.4)  # inches
_NEAR = 0.09  # of the axis: numbers of ticks nearer than this would touch
_FINE = (  # ticks within a decade, for axes of fewer decades than so many
    (0.7, (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)),
    (1.5, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
    (3.0, (1.0, 2.0, 5.0)),
)
_DEVIATION = ("band: one standard deviation", 0.35)
_CEILING = ("lighter band: up to the ceiling, an upper bound", 0.12)
_FAR = 3.0  # ceilings beyond this many times the value are not drawn


@contextmanager
def style(dark: bool = False) -> Iterator[None]:
    """Set the look of figures: readable at half their size, with the background of the page."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra.of("drawing figures needs matplotlib", "figures") from error
    from cycler import cycler

    ink = _INK[dark]
    settings: dict[Any, Any] = {
        "axes.prop_cycle": cycler(color=_DARK if dark else _LIGHT),
        "axes.edgecolor": ink,
        "axes.labelcolor": ink,
        "axes.titlecolor": ink,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "figure.facecolor": "none",
        "font.size": 10,
        "grid.alpha": 0.25,
        "grid.color": ink,
        "grid.linewidth": 0.5,
        "legend.frameon": False,
        "legend.labelcolor": ink,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "svg.fonttype": "path",
        "svg.hashsalt": "wordsway",  # the same picture, the same bytes
    }
    with mpl.rc_context(settings):
        yield


def render(draw: Callable[[Figure], None], kind: str, dark: bool = False) -> bytes:
    """Draw a figure and return its bytes: kind "svg" or "png" (on white, or near black)."""
    with style(dark):
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        draw(figure)
        if not figure.legends:
            legend_below(figure)
        if not figure.axes:
            figure.set_size_inches(*_PANEL)
            figure.text(0.5, 0.5, "nothing to draw yet", ha="center")
        buffer = io.BytesIO()
        if kind == "png":
            figure.savefig(buffer, format="png", dpi=160, facecolor="#15181c" if dark else "white")
        else:
            figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()


def legend_below(figure: Figure, panels: Sequence[Axes] = (), columns: int = 3) -> None:
    """Add a legend below all panels: of the curves of some of them, which then have none, and of all bands."""
    from matplotlib.patches import Patch

    entries: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
        axes.legend().remove()
    bands = [collection for axes in figure.axes for collection in axes.collections if collection.get_gid() is not None]
    for label, alpha in sorted({str(one.get_gid()): one.get_alpha() for one in bands}.items()):
        entries[label] = Patch(color="grey", alpha=alpha, linewidth=0)
    if entries:
        figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, fontsize=9)


def panel(
    figure: Figure, count: int, place: int, title: str, columns: int = 3, size: tuple[float, float] = _PANEL
) -> Axes:
    """Add one of `count` panels, in rows of at most `columns`; the figure grows to hold them."""
    across = min(count, columns)
    down = -(-count // across)
    figure.set_size_inches(size[0] * across, size[1] * down)
    axes = figure.add_subplot(down, across, place + 1)
    axes.set_title(title)
    return axes


def panels(
    figure: Figure,
    rows: Points,
    names: Sequence[str],
    title: Callable[..., str] = str,
    columns: int = 3,
    size: tuple[float, float] = _PANEL,
) -> Iterator[tuple[Axes, tuple[Any, ...], Table]]:
    """Add a panel for each combination of values in some columns; yields its axes, these values and its rows."""
    groups = curves(rows, *names)
    for place, (values, members) in enumerate(groups.items()):
        yield panel(figure, len(groups), place, title(*values), columns, size), values, [dict(row) for row in members]


def colour(number: int) -> str:
    """Return the colour of a curve by its number."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    colours = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    return to_hex(colours[number % len(colours)])


def lines(axes: Axes, rows: Points, column: str, label: str, x: str = "n", y: str = "mean") -> None:
    """Draw a curve for each value of a column: y against x, with the rows' deviations and ceilings where they have any.

    `label` is a format for the value.
    """
    for number, ((value,), line) in enumerate(curves(rows, column).items()):
        ordered = sorted(line, key=lambda row: float(row[x]))
        xs, ys = ([row[name] for row in ordered] for name in (x, y))
        deviations, ceilings = ([row.get(name) for row in ordered] for name in ("deviation", "ceiling"))
        curve(axes, xs, ys, label.format(value), number, [value or 0.0 for value in deviations], ceilings)


def curve(
    axes: Axes,
    x: Sequence[float],
    mean: Sequence[float],
    label: str,
    number: int,
    deviation: Sequence[float] = (),
    ceiling: Sequence[float | None] = (),
) -> None:
    """Draw a mean with its band of one standard deviation, and a lighter band from there up to the ceiling.

    A ceiling so far away that it would flatten the curves is written in the legend instead.
    """
    shade = colour(number)
    spread = list(deviation) or [0.0] * len(mean)
    low = [m - s for m, s in zip(mean, spread, strict=True)]
    high = [m + s for m, s in zip(mean, spread, strict=True)]
    known = [value for value in ceiling if value is not None]
    if len(known) == len(mean):
        ratio = max(value / m for value, m in zip(known, mean, strict=True))
        if ratio <= _FAR:
            top = [max(value, h) for value, h in zip(known, high, strict=True)]
            band(axes, x, high, top, number, _CEILING, 1)
        else:
            label = f"{label} (ceiling: {float(f'{ratio:.2g}'):,.4g} S)"
    axes.plot(x, mean, color=shade, marker=_MARKERS[number % len(_MARKERS)], label=label, zorder=3)
    if any(spread):
        band(axes, x, low, high, number, _DEVIATION, 2)


def band(
    axes: Axes,
    x: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    number: int,
    kind: tuple[str, float],
    order: float,
) -> None:
    """Draw a band of some kind: what the legend of the figure calls it, and how dense it is."""
    label, alpha = kind
    axes.fill_between(x, low, high, color=colour(number), alpha=alpha, linewidth=0, zorder=order, gid=label)


def theory(axes: Axes, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """Draw a line of theory, dashed."""
    import matplotlib as mpl

    axes.plot(x, y, color=mpl.rcParams["text.color"], linestyle=(0, (4, 3)), linewidth=1.2, label=label, zorder=4)


def law(axes: Axes, rows: Points, law: Callable[[float], float], label: str, x: str = "n") -> None:
    """Draw a law of x as a dashed line through the middle of the means."""
    places = sorted({row[x] for row in rows})
    height = fmean(row["mean"] / law(row[x]) for row in rows)
    theory(axes, places, [height * law(place) for place in places], label)


def line(axes: Axes, x: Sequence[float], y: Sequence[float], label: str, number: int, dash: float = 1.5) -> None:
    """Draw a bound: a line in the colour of its number, with dashes of some length."""
    axes.plot(x, y, color=colour(number), linestyle=(0, (dash, 1.5)), linewidth=1.4, label=label, zorder=2)


def common_scale(panels: Sequence[Axes]) -> None:
    """Give panels that are compared one y axis."""
    limits = [axes.get_ylim() for axes in panels]
    for axes in panels:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        _tick(axes)


def _tick(axes: Axes) -> None:
    """Set the ticks of a logarithmic y axis by how many decades it has."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if axes.get_yscale() != "log":
        return
    bottom, top = axes.get_ylim()
    decades = math.log10(top / bottom)
    fine = next((subs for most, subs in _FINE if decades < most), None)
    if fine is not None:  # else powers of ten are written as such
        axes.yaxis.set_major_locator(LogLocator(subs=fine))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def label_axes(axes: Axes, x: str, y: str) -> None:
    """Label the axes; y in the first column of panels only."""
    spec = axes.get_subplotspec()
    axes.set_xlabel(x)
    axes.set_ylabel(y if spec is None or spec.is_first_col() else "")


def finish(axes: Axes, x: str, y: str, places: Sequence[float], logarithmic: bool) -> None:
    """Add labels, scales, ticks at the measured places, and the legend."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    label_axes(axes, x, y)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        _tick(axes)
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(FixedLocator(list(places)))
    legible = _legible(places, axes.get_xscale() == "log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value in legible else ""))
    axes.xaxis.set_minor_locator(NullLocator())
    bottom, top = axes.get_ylim()  # space for the legend above the curves
    axes.set_ylim(top=top * (top / bottom) ** 0.4 if logarithmic else top + 0.35 * (top - bottom))
    long = any(len(label) > 20 for label in axes.get_legend_handles_labels()[1])
    axes.legend(fontsize=9, loc="upper right", ncols=1 if long else 2)


def _legible(places: Sequence[float], logarithmic: bool) -> set[float]:
    """Return the places whose numbers can be written without touching, the largest first: all ticks stay."""
    where = {place: math.log(place) if logarithmic else place for place in places}
    near = _NEAR * (max(where.values()) - min(where.values()))
    kept: list[float] = []
    for place in sorted(where, reverse=True):
        if not kept or where[kept[-1]] - where[place] >= near:
            kept.append(place)
    return set(kept)


def dots(axes: Axes, x: Sequence[float], y: Sequence[float], number: int, mark: str, label: str = "") -> None:
    """Draw points of one kind: its colour by number, its marker as matplotlib names it."""
    shade = colour(number)
    axes.scatter(x, y, s=18, color=shade, marker=mark, alpha=0.8, linewidths=1.0, label=label, zorder=3, clip_on=False)


def square(axes: Axes, x: str, y: str, width: float, height: float) -> None:
    """Add labels, and limits that show width x height from 0."""
    label_axes(axes, x, y)
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
