"""Run the notebooks of the documentation and write their outputs into them: python tools/notebooks.py."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"


def execute(notebook: dict[str, Any]) -> None:
    """Run the cells one after another in one namespace, as Jupyter does, and keep what they print, return and draw."""
    import matplotlib as mpl

    mpl.use("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"], cell["outputs"] = number, _outputs("".join(cell["source"]), names, number)


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    body = ast.parse(source).body
    last = body[-1] if isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body if last is None else body[:-1], []), "notebook", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), "notebook", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    pictures = _pictures()
    if value is not None and not pictures:
        shown = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append({"output_type": "execute_result", "execution_count": number, "data": shown, "metadata": {}})
    return outputs + [{"output_type": "display_data", "data": {"image/png": one}, "metadata": {}} for one in pictures]


def _pictures() -> list[str]:
    """Return the open figures of matplotlib as PNG in base 64, and close them."""
    from matplotlib import pyplot as plt

    pictures = []
    for number in plt.get_fignums():
        stream = io.BytesIO()
        plt.figure(number).savefig(stream, dpi=80, bbox_inches="tight", metadata={"Software": None})
        pictures.append(base64.b64encode(stream.getvalue()).decode())
    plt.close("all")
    return pictures


def texts(notebook: dict[str, Any]) -> list[list[str]]:
    """Return what each cell printed and returned, without pictures."""
    return [
        ["".join(output.get("text", output.get("data", {}).get("text/plain", ""))) for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def as_markdown(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page in MyST: its cells, each with what it printed and drew."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if picture := data.get("image/png"):
                parts.append(f'```{{raw}} html\n<img alt="" src="data:image/png;base64,{picture}">\n```')
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for path in sorted(FOLDER.glob(sys.argv[1] if len(sys.argv) > 1 else "*.ipynb")):
        content = json.loads(path.read_text(encoding="utf-8"))
        execute(content)
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path.name)
