"""The command `generalize`: what training on a sentence teaches about the same sentence with one word changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

Map = Annotated[
    str, typer.Argument(metavar="MAP", help="rf, drf, qkv, raf, relu-raf, sigmoid-raf or linear-raf: see wordsway maps")
]
N = Annotated[int, typer.Option("--n", metavar="N", help="words in a context")]
D = Annotated[int, typer.Option("--d", metavar="D", help="dimension of a word")]
Samples = Annotated[int, typer.Option(metavar="N", help="training samples, besides the new one")]
Data = Annotated[str, typer.Option(metavar="gaussian|imdb", help="random contexts and labels, or film reviews")]
Training = Annotated[
    str | None,
    typer.Option(metavar="fine-tuned|re-trained", help="how the model learns the new sample; both if left out"),
]
Loss = Annotated[
    str | None,
    typer.Option(
        metavar="alignment|error|swapped",
        help="what the changed word minimises: the alignment of the training (25), the error (16), or the other "
        "training's alignment; the first two if left out",
    ),
]
Penalty = Annotated[
    list[float] | None, typer.Option(metavar="P", help="penalty on gamma; may be repeated; 0 if left out")
]
Word = Annotated[int, typer.Option(metavar="K", help="position of the word that changes, from 0")]
Radius = Annotated[float | None, typer.Option(metavar="R", help="how far the word may move; sqrt(d) if left out")]
Trials = Annotated[int, typer.Option(metavar="T", help="simulations; number k = 0, 1, ... has seed S + k")]
Seed = Annotated[int, typer.Option(metavar="S", help="decides samples, weights and search")]
Json = Annotated[bool, typer.Option("--json", help="one JSON object a line, for each training, loss and penalty")]


def generalize(
    map_name: Map,
    n: N,
    d: D,
    samples: Samples,
    data: Data = "gaussian",
    training: Training = None,
    loss: Loss = None,
    penalty: Penalty = None,
    word: Word = 0,
    radius: Radius = None,
    trials: Trials = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train on samples, then on one more, and change a word of it: does the model see that the label changed?"""
    plan = _resolve(map_name, n, d, samples, data, training, loss, penalty or [0.0], word, radius, trials, seed)
    if as_json:
        for records in _run(plan):
            for record in records:
                print(json.dumps(record, allow_nan=False), flush=True)
        return
    from wordsway.cli.generalize_views import print_simulations

    print_simulations(plan, _run(plan))


@dataclass(frozen=True)
class Plan:
    """What will be simulated; every field has been checked."""

    map: Any
    n: int
    d: int
    samples: int
    data: str
    trainings: tuple[str, ...]
    losses: tuple[str, ...]
    penalties: tuple[float, ...]
    word: int
    radius: float
    trials: int
    seed: int


def _resolve(
    map_name: str,
    n: int,
    d: int,
    samples: int,
    data: str,
    training: str | None,
    loss: str | None,
    penalties: list[float],
    word: int,
    radius: float | None,
    trials: int,
    seed: int,
) -> Plan:
    """Check everything that was asked for, before anything is drawn."""
    from wordsway.checks import check_choice, check_radius, check_size, check_word
    from wordsway.cli.plan import DRAWN, check_seeds
    from wordsway.errors import InputError
    from wordsway.generalization import TRAININGS, Problem
    from wordsway.maps.catalogue import map_named

    named = map_named(map_name)
    trainings = TRAININGS if training is None else (training,)
    losses = ("alignment", "error") if loss is None else (loss,)
    for name, what in ((name, what) for name in trainings for what in losses):
        for number in penalties:
            Problem(name, what, number)  # checked when it is built
    n, d = check_size(n, "n"), check_size(d, "d")
    if check_size(samples, "samples") < 2:
        raise InputError(f"samples must be at least 2, one of each class, got {samples}")
    check_choice("data", data, DRAWN)
    named.resolve(n, d)
    count = check_size(trials, "trials")
    first = check_seeds(seed, count)
    place, reach = check_word(n, word), check_radius(radius, d)
    return Plan(named, n, d, samples, data, trainings, losses, tuple(penalties), place, reach, count, first)


def _run(plan: Plan) -> Iterator[list[dict[str, Any]]]:
    """The records of each simulation as it ends."""
    from wordsway.generalization import one_word_generalization

    for seed in range(plan.seed, plan.seed + plan.trials):
        contexts, labels = _samples(plan, seed)
        phi = plan.map.build(plan.n, plan.d, None, seed)
        found = one_word_generalization(
            phi,
            contexts[:-1],
            labels[:-1],
            contexts[-1],
            float(labels[-1]),
            plan.word,
            losses=plan.losses,
            penalties=plan.penalties,
            trainings=plan.trainings,
            radius=plan.radius,
            seed=seed,
        )
        head = {"map": plan.map.name, "n": plan.n, "d": plan.d, "samples": plan.samples}
        yield [{**head, **one.to_dict(), "seed": seed, "word": plan.word, "data": plan.data} for one in found]


def _samples(plan: Plan, seed: int) -> tuple[Any, Any]:
    """Training samples and, last, the new one."""
    if plan.data == "imdb":
        from wordsway.models import review_contexts

        return review_contexts(plan.samples + 1, plan.n, plan.d, seed)
    from wordsway.contexts import gaussian_samples

    return gaussian_samples(plan.samples + 1, plan.n, plan.d, seed)
