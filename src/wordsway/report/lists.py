"""Terminal views of what can be measured and reproduced; it loads neither PyTorch nor NumPy, to print at once."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from wordsway.report.terminal import NOTE, Columns, Row, console, table


def print_maps(rows: Sequence[Row], source: str) -> None:
    """Print the catalogue of maps: what each is, its formula and weights, and its options."""
    out = console()
    columns: Columns = {
        "map": lambda row: Text(row["name"], "bold cyan"),
        "what it is": _formula,
        "options": lambda row: Text("\n".join(f"--{name}" for name in row["options"])),
    }
    out.print(table(rows, columns, wrap=("what it is",)))
    out.print("X is a context (n x d), phi the --activation, k the --width, L the --depth.")
    out.print(f"Equations and sections: {source}.", style=NOTE)


def _formula(row: Row) -> Text:
    about = f"{row['description']}, {row['source']}\n"
    return Text.assemble(about, (f"{row['formula']}\n", "bold"), (f"{row['weights']}\n", NOTE))


def print_figure_list(rows: Sequence[Row]) -> None:
    """Print the figures that can be reproduced, with their trials at each scale."""
    out = console()
    columns: Columns = {"figure": "name", "what it shows": "title", **{scale: scale for scale in rows[0]["trials"]}}
    out.print(table([{**row, **row["trials"]} for row in rows], columns, wrap=("what it shows",)))
    out.print(
        "\nNumbers are trials, with those of the figures it needs, without those on data that is downloaded on "
        "request. Example: wordsway reproduce fig2-rf"
    )


def print_models(rows: Sequence[Row]) -> None:
    """Print the models that can be named; the last row describes all others."""
    out = console()
    *offline, other = rows
    columns: Columns = {
        "model": lambda row: Text(row["name"], "bold cyan"),
        "what it is": "about",
        "kind": lambda row: row["kinds"][0],
        "installed": lambda row: "yes" if row["installed"] else f"no: {row['install']}",
    }
    out.print(table(offline, columns, wrap=("what it is", "installed")))
    out.print()
    state = "; HF_HUB_OFFLINE is set, so only what is cached" if other["hub_offline"] else ""
    if not other["installed"]:
        state = f", after {other['install']}"
    out.print(f"A name on the hub, a folder or a GGUF file works too{state}.", markup=False)
    out.print(f"Attention is known of the kinds {', '.join(other['kinds'])}; other kinds are measured as a whole.")
