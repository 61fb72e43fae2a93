"""The commands `ntk` and `robustness`: how well conditioned tangent kernels are, and which features are robust."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

Samples = Annotated[int, typer.Option(metavar="N", help="number of inputs, rows of norm sqrt(d)")]
Width = Annotated[int, typer.Option(metavar="K", help="neurons of each hidden layer")]
Dimension = Annotated[
    int | None,
    typer.Option("--d", metavar="D", help="dimension of an input; if left out, the width, or that of the images"),
]
Depth = Annotated[int, typer.Option(metavar="L", help="weights of the network, the last one included")]
Layer = Annotated[
    int | None, typer.Option(metavar="L", help="only the block of one weight, from 0; the whole kernel if left out")
]
Activation = Annotated[str, typer.Option(metavar="NAME", help="tanh, softplus, cos, square, gelu, sigmoid, ...")]
Kind = Annotated[str, typer.Argument(metavar="rf|ntk", help="features phi(V x), or x (x) phi'(W x)")]
D = Annotated[
    int | None,
    typer.Option("--d", metavar="D", help="dimension of an input, 384 a word for imdb; images have their own"),
]
Data = Annotated[
    str,
    typer.Option(
        metavar="gaussian|imdb|digits|mnist|cifar10", help="random inputs and labels, film reviews, or images"
    ),
]
Features = Annotated[int, typer.Option("--width", metavar="K", help="random features; neurons for ntk (p = K D)")]
Terms = Annotated[bool, typer.Option("--terms", help="tell the terms of the proofs too")]
Trials = Annotated[int, typer.Option(metavar="T", help="number of trials; trial k = 0, 1, ... has seed S + k")]
Seed = Annotated[int, typer.Option(metavar="S", help="decides inputs, labels and weights")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line, as each trial ends")]


def ntk(
    samples: Samples,
    width: Width,
    d: Dimension = None,
    depth: Depth = 3,
    layer: Layer = None,
    data: Data = "gaussian",
    activation: Activation = "tanh",
    trials: Trials = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure the smallest eigenvalue of the tangent kernel of a random network: can it fit any labels?"""
    from wordsway.activations import activation as named
    from wordsway.checks import check_size
    from wordsway.errors import InputError
    from wordsway.models.inputs import check_dimension

    count, wide, deep = check_size(samples, "samples"), check_size(width, "width"), check_size(depth, "depth")
    dimension = check_dimension(data, wide if d is None and data == "gaussian" else d)
    named(activation)
    if layer is not None and not 0 <= layer < deep:
        raise InputError(f"layer must be from 0 to {deep - 1}, got {layer}")

    def trial(number: int) -> dict[str, Any]:
        from wordsway.kernels import Network, smallest_eigenvalue
        from wordsway.kernels import ntk as kernel_of
        from wordsway.models import input_samples

        inputs, _ = input_samples(data, count, dimension, number)
        begin = time.perf_counter()
        network = Network.drawn([inputs.shape[1]] + [wide] * (deep - 1), activation, number)
        found = smallest_eigenvalue(kernel_of(network, inputs, layer))
        weights = network.weights if layer is None else network.weights[layer : layer + 1]
        sizes = {"samples": count, "width": wide, "depth": deep, "parameters": sum(w.numel() for w in weights)}
        rest = {"seconds": round(time.perf_counter() - begin, 6), "d": network.d, "layer": layer}
        return {**sizes, **found.to_dict(), **rest, "activation": activation, "seed": number, "data": data}

    columns = ("seed", "parameters", "smallest_eigenvalue", "residual", "status", "seconds")
    title = f"tangent kernel, N={count}, {_said(data, dimension)}, width {wide}, {deep} weights, {activation}"
    _tell(title, columns, _each(trial, trials, seed), as_json)


def robustness(
    kind: Kind,
    samples: Samples,
    width: Features,
    d: D = None,
    data: Data = "gaussian",
    activation: Activation = "tanh",
    terms: Terms = False,
    trials: Trials = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure how far an adversarial change of an input moves a model that fits its samples: S = |x| |grad f(x)|."""
    from wordsway.activations import activation as named
    from wordsway.checks import check_choice, check_size
    from wordsway.kernels.features import KINDS
    from wordsway.models.inputs import check_dimension

    check_choice("kind", kind, KINDS)
    count, wide = check_size(samples, "samples"), check_size(width, "width")
    dimension = check_dimension(data, d)
    named(activation)

    def trial(number: int) -> dict[str, Any]:
        from wordsway.kernels import feature_robustness
        from wordsway.models import input_samples

        inputs, labels = input_samples(data, count + 1, dimension, number)
        found = feature_robustness(kind, inputs[:-1], labels[:-1], inputs[-1], wide, activation, number, terms)
        return {**found.to_dict(), "data": data}

    columns = ("seed", "sensitivity", "fit", *(("bound", "interaction", "lambda_min") if terms else ()), "seconds")
    title = f"{kind} features, N={count}, {_said(data, dimension)}, width {wide}, {activation}: S = |x| |grad f(x)|"
    _tell(title, columns, _each(trial, trials, seed), as_json)


def _said(data: str, d: int | None) -> str:
    return data if d is None else f"d={d}" if data == "gaussian" else f"{data}, d={d}"


def _each(trial: Callable[[int], dict[str, Any]], trials: int, seed: int) -> Iterator[dict[str, Any]]:
    from wordsway.checks import check_size
    from wordsway.cli.plan import check_seeds

    count = check_size(trials, "trials")
    first = check_seeds(seed, count)
    return (trial(number) for number in range(first, first + count))


def _tell(title: str, columns: tuple[str, ...], records: Iterator[dict[str, Any]], as_json: bool) -> None:
    """One JSON object a line as each trial ends, or a table in the end."""
    if as_json:
        for record in records:
            print(json.dumps(record, allow_nan=False), flush=True)
        return
    from rich.console import Console

    from wordsway import report

    console = Console(highlight=False)
    console.print(title, style="bold")
    console.print()
    headings = [name.replace("_", " ") for name in columns]
    table = report.plain_table(headings, right=tuple(range(len(columns))))
    try:
        for record in records:
            table.add_row(*(_cell(record[name]) for name in columns))
    finally:
        if table.row_count:  # an error or an interrupt loses no trial that has ended
            console.print(table)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
