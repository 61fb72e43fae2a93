"""The command `generalize`: what training on a sample implies for the same sample with one word changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wordsway.cli.options import Dimension, Json, MapName, Radius, Trials, TrialSeed, Words
from wordsway.cli.running import Rows, run_trials

DATA = ("gaussian", "imdb")

Samples = Annotated[int, typer.Option(metavar="N", help="training samples, at least 2, besides the new one")]
Data = Annotated[
    str,
    typer.Option(metavar="|".join(DATA), help="random contexts with alternating labels, or film reviews with theirs"),
]
Training = Annotated[
    str | None,
    typer.Option(metavar="fine-tuned|re-trained", help="how the model is trained on the new sample; default: both"),
]
Loss = Annotated[
    str | None,
    typer.Option(
        metavar="alignment|error|swapped",
        help="what the changed word minimises: the alignment of the training (25), the error (16), or the other "
        "training's alignment; default: the first two",
    ),
]
Penalty = Annotated[
    list[float] | None,
    typer.Option(metavar="P", help="weight of gamma^2 in the loss, (147) to (149); may be repeated; default: 0"),
]
Start = Annotated[
    float,
    typer.Option("--theta0-scale", metavar="S", help="train from a theta_0 of independent N(0, S^2 / p) entries, (12)"),
]
Word = Annotated[int, typer.Option(metavar="K", help="position of the word that changes, from 0")]


def generalize(
    map_name: MapName,
    n: Words,
    d: Dimension,
    samples: Samples,
    data: Data = "gaussian",
    training: Training = None,
    loss: Loss = None,
    penalty: Penalty = None,
    word: Word = 0,
    radius: Radius = None,
    theta0_scale: Start = 0.0,
    trials: Trials = 1,
    seed: TrialSeed = 0,
    as_json: Json = False,
) -> None:
    """Train on samples, then on one more, and change a word of it: does the model see that the label changed?"""
    from wordsway.checks import check_choice, check_radius, check_size, check_word
    from wordsway.errors import InputError
    from wordsway.generalization import TRAININGS, Problem, one_word_generalization
    from wordsway.generalization.measure import check_start
    from wordsway.maps.catalogue import map_named
    from wordsway.report.measurements import print_simulations

    named = map_named(map_name)
    trainings = TRAININGS if training is None else (training,)
    losses = ("alignment", "error") if loss is None else (loss,)
    penalties = tuple(penalty or [0.0])
    for problem in ((one, what, weight) for one in trainings for what in losses for weight in penalties):
        Problem(*problem)  # raises where one of them is not known
    check_size(n, "n"), check_size(d, "d")
    if check_size(samples, "samples") < 2:
        raise InputError(f"samples must be at least 2, one of each class, got {samples}")
    check_choice("data", data, DATA)
    named.resolve(n, d)
    check_word(n, word)
    reach = check_radius(radius, d)
    check_start(theta0_scale, "theta0_scale")

    def trial(number: int) -> Rows:
        contexts, labels = _samples(data, samples + 1, n, d, number)
        results = one_word_generalization(
            named.build(n, d, None, number),
            contexts[:-1],
            labels[:-1],
            contexts[-1],
            float(labels[-1]),
            word,
            losses=losses,
            penalties=penalties,
            trainings=trainings,
            radius=reach,
            start=theta0_scale,
            seed=number,
        )
        head = {"map": named.name, "n": n, "d": d, "samples": samples}
        tail = {"seed": number, "word": word, "data": data, "theta0_scale": theta0_scale}
        return [{**head, **result.to_dict(), **tail} for result in results]

    title = f"{named.name}, n={n} d={d}, N={samples}, {data}, word {word}, radius {reach:.4g}"
    title += f", theta_0 of scale {theta0_scale:g}" if theta0_scale else ""
    run_trials(trial, trials, seed, as_json, lambda rows: print_simulations(title, rows))


def _samples(data: str, count: int, n: int, d: int, seed: int) -> tuple[Any, Any]:
    """Training samples and, last, the new one."""
    if data == "imdb":
        from wordsway.models import review_contexts

        return review_contexts(count, n, d, seed)
    from wordsway.contexts import gaussian_samples

    return gaussian_samples(count, n, d, seed)
