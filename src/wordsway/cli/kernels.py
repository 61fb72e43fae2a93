"""The commands `ntk` and `robustness`: how well conditioned tangent kernels are, and which features are robust."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from wordsway.cli.options import Json, Trials, TrialSeed
from wordsway.cli.running import Rows, run_trials

Samples = Annotated[int, typer.Option(metavar="N", help="number of inputs, rows of norm sqrt(d)")]
Data = Annotated[
    str,
    typer.Option(
        metavar="gaussian|imdb|mnist|mnist-full|cifar10|digits",
        help="random inputs and labels; the first words of film reviews, with their verdicts; or images, with the "
        "parity of their class",
    ),
]
_DIMENSION = "dimension of an input: a multiple of 384, one per word, for imdb; images have their own"
Dimension = Annotated[int | None, typer.Option("--d", metavar="D", help=_DIMENSION)]
DimensionOrWidth = Annotated[
    int | None, typer.Option("--d", metavar="D", help=f"{_DIMENSION}; default for gaussian: the width")
]
Width = Annotated[int, typer.Option(metavar="K", help="neurons of each hidden layer")]
Depth = Annotated[int, typer.Option(metavar="L", help="weights of the network, the last one included")]
Layer = Annotated[
    int | None, typer.Option(metavar="L", help="only the block of one weight, from 0; default: the whole kernel")
]
Activation = Annotated[str, typer.Option(metavar="NAME", help="tanh, softplus, cos, square, gelu, sigmoid, ...")]
Kind = Annotated[str, typer.Argument(metavar="rf|ntk", help="features phi(V x), or x (x) phi'(W x)")]
Features = Annotated[int, typer.Option("--width", metavar="K", help="random features; neurons for ntk (p = K D)")]
_PUBLISHED = "the published protocol: Gaussian labels for gaussian; classes 0 and 1 and pixels from 0 to 1 for images"
Published = Annotated[bool, typer.Option("--published", help=_PUBLISHED)]
Terms = Annotated[bool, typer.Option("--terms", help="compute the terms of the proofs too")]


def ntk(
    samples: Samples,
    width: Width,
    d: DimensionOrWidth = None,
    depth: Depth = 3,
    layer: Layer = None,
    data: Data = "gaussian",
    activation: Activation = "tanh",
    trials: Trials = 1,
    seed: TrialSeed = 0,
    as_json: Json = False,
) -> None:
    """Measure the smallest eigenvalue of the tangent kernel of a random network: can it fit any labels?"""
    from wordsway.activations import activation as activation_named
    from wordsway.checks import check_size
    from wordsway.errors import InputError
    from wordsway.models.inputs import check_dimension
    from wordsway.report.measurements import print_rows

    check_size(samples, "samples"), check_size(width, "width"), check_size(depth, "depth")
    dimension = check_dimension(data, width if d is None and data == "gaussian" else d)
    activation_named(activation)
    if layer is not None and not 0 <= layer < depth:
        raise InputError(f"layer must be from 0 to {depth - 1}, got {layer}")

    def trial(number: int) -> Rows:
        from wordsway.kernels import Network, smallest_eigenvalue
        from wordsway.kernels import ntk as tangent_kernel
        from wordsway.models import input_samples

        inputs, _ = input_samples(data, samples, dimension, number)
        begin = time.perf_counter()
        network = Network.drawn([inputs.shape[1]] + [width] * (depth - 1), activation, number)
        smallest = smallest_eigenvalue(tangent_kernel(network, inputs, layer))
        weights = network.weights if layer is None else network.weights[layer : layer + 1]
        sizes = {"samples": samples, "width": width, "depth": depth, "parameters": sum(w.numel() for w in weights)}
        rest = {"seconds": round(time.perf_counter() - begin, 6), "d": network.d, "layer": layer}
        return [{**sizes, **smallest.to_dict(), **rest, "activation": activation, "seed": number, "data": data}]

    keys = ("seed", "parameters", "smallest_eigenvalue", "residual", "status", "seconds")
    title = f"tangent kernel, N={samples}, {_inputs(data, dimension)}, width {width}, {depth} weights, {activation}"
    run_trials(trial, trials, seed, as_json, lambda rows: print_rows(title, rows, keys))


def robustness(
    kind: Kind,
    samples: Samples,
    width: Features,
    d: Dimension = None,
    data: Data = "gaussian",
    activation: Activation = "tanh",
    published: Published = False,
    terms: Terms = False,
    trials: Trials = 1,
    seed: TrialSeed = 0,
    as_json: Json = False,
) -> None:
    """Measure how far an adversarial change of an input moves a model that fits its samples: S = |x| |grad f(x)|."""
    from wordsway.activations import activation as activation_named
    from wordsway.checks import check_choice, check_size
    from wordsway.kernels.features import KINDS
    from wordsway.models.inputs import check_dimension
    from wordsway.report.measurements import print_rows

    check_choice("kind", kind, KINDS)
    check_size(samples, "samples"), check_size(width, "width")
    dimension = check_dimension(data, d, published)
    activation_named(activation)

    def trial(number: int) -> Rows:
        from wordsway.kernels import feature_robustness
        from wordsway.models import input_samples

        inputs, labels = input_samples(data, samples + 1, dimension, number, published)
        measured = feature_robustness(kind, inputs[:-1], labels[:-1], inputs[-1], width, activation, number, terms)
        return [{**measured.to_dict(), "data": data, "published": published}]

    keys = ("seed", "sensitivity", "fit", *(("lower_bound", "bound") if terms else ()), "seconds")
    norms = ("interaction_centred", "interaction_law") if kind == "rf" else ("interaction", "interaction_centred")
    inputs = _inputs(data, dimension)
    title = f"{kind} features, N={samples}, {inputs}, width {width}, {activation}: S = |x| |grad f(x)|"

    def show(rows: Rows) -> None:
        print_rows(title, rows, keys)
        if terms:
            print_rows("\nterms of the proofs", rows, ("seed", *norms, "lambda_min", "lambda_max_centred"))

    run_trials(trial, trials, seed, as_json, show)


def _inputs(data: str, d: int | None) -> str:
    return data if d is None else f"d={d}" if data == "gaussian" else f"{data}, d={d}"
