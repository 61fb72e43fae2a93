"""Made-up trials of every figure: records that obey its theory, and changes that break it."""

import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

from wordsway.experiments import Experiment, RunConfig, TrialResult
from wordsway.figures import all_figures, fig1, ntk_flow
from wordsway.sensitivity import assumptions

Record: TypeAlias = dict[str, Any]
Law: TypeAlias = Callable[[Record, int], Record]  # of the parameters and the seed of a trial
Change: TypeAlias = Callable[[Record, Record], Record]  # of its parameters and its record


TRIALS = dict.fromkeys(("fig4", "fig5", "fig6", "fig7"), 8)  # enough for sign tests; 2 of the others


def results(name: str, change: Change = lambda point, record: {}, config: RunConfig | None = None) -> list[TrialResult]:
    """All trials of a figure and of those it needs, each record updated by a change."""
    made = []
    for trial in all_figures()[name].planned(config or RunConfig(trials=TRIALS.get(name, 2))):
        point = json.loads(trial.parameters)
        record = LAWS[trial.experiment](point, trial.seed)
        made.append(TrialResult(trial.experiment, point, trial.seed, {**record, **change(point, record)}))
    return made


def table(name: str, change: Change = lambda point, record: {}, config: RunConfig | None = None) -> list[Record]:
    """The table of those trials."""
    return figure(name).table(results(name, change, config))


def figure(name: str) -> Experiment:
    return all_figures()[name]


# Theory


def _sensitivity(point: Record, seed: int) -> Record:
    n, noise = float(point["n"]), 1.01 if seed % 2 else 0.99
    depth = float(point.get("depth", 1))
    root = (1 + math.sqrt(2 * depth / n)) / math.sqrt(n) * depth
    value = noise * (2.0 if point["map"] in ("raf", "qkv") else root)
    return {"sensitivity": value, "ceiling": 1.5 * value, "status": "locally converged"}


def _words(point: Record, seed: int) -> Record:
    root, noise = math.sqrt(point["m"] / point["n"]), 1.01 if seed % 2 else 0.99
    value = noise * (2.0 + root if point["map"] == "raf" else root * (1 + math.sqrt(2) * root))
    return {"sensitivity": value, "ceiling": 1.5 * value}


def _proof(point: Record, seed: int) -> Record:
    """Steps of a proof whose constants do not depend on d."""
    captured = 8 / point["constant"]
    proof = {"aligned": 0.9, "alignment": 1.0, "score": 0.1, "captured": captured, "proved": captured}
    return {"proof": {**proof, "sensitivity": 2.0 + 0.1 * seed}, "search": {"sensitivity": 3.0}}


def _generalization(point: Record, seed: int) -> Record:
    """A penalty lowers gamma, attention is below the line, random features above, and a swapped loss is worse."""
    share = {"raf": 0.1, "rf": 1.2, "relu-raf": 0.6}[point["map"]]
    searches = []
    for training in ("fine-tuned", "re-trained"):
        for loss, factor, largest, change in (
            ("alignment", 1.0, 0.2, 0.18),
            ("error", 0.9, 1.6, 0.4),
            ("swapped", 1.2, 0.2, 0.18),
        ):
            for penalty in (0.0, 1.0, 0.1, 0.01):
                gamma = largest - change * math.sqrt(penalty) + 0.001 * seed
                numbers = {"gamma": gamma, "bound": (2 - gamma) ** 2, "error": share * factor * (2 - gamma) ** 2}
                rest = {"floor": 0.0, "constant": 3.0, "sensitivity": 1.0, "after": 0.5, "interpolates": True}
                searches.append({"training": training, "loss": loss, "penalty": penalty, **numbers, **rest})
    if point["map"] != "rf":
        return {"searches": searches}
    return {"searches": searches, "assumptions": _assumed(point, ["Theorem 6.2", "Theorem 6.3"])}


def _penalised(point: Record, seed: int) -> Record:
    """The same, where only searches with a penalty end below the line."""
    record = _generalization(point, seed)
    plain = [one for one in record["searches"] if (one["loss"], one["penalty"]) == ("error", 0.0)]
    for one in plain:
        one["error"] = 1.1 * one["bound"]
    return record


def _assumed(point: Record, theorems: list[str]) -> Record:
    samples = point["samples"]
    return assumptions("rf", n=point["n"], d=point["d"], samples=samples, prediction=0.5, theorems=theorems).to_dict()


def _gap(point: Record, seed: int) -> Record:
    gap = (0.5 + 0.01 * seed) * math.sqrt(point["samples"] / point["n"])
    return {"gap": gap, "ceiling": 9 * gap, "assumptions": _assumed(point, ["Appendix E"])}


def attention(values: list[float]) -> list[list[float]]:
    """Four words, three of which attend to the last one by these values."""
    return [[0.2, 0.2, 0.2, value] for value in values] + [[0.2] * 4]


def _first(point: Record, seed: int) -> Record:
    if point["part"] == "scores":
        both = zip(fig1.SENTENCES, (0.1, 0.2), strict=True)
        return {"scores": [{"words": text.split(), "scores": attention([last] * 3)} for text, last in both]}
    return {"prompts": {"before": {"Yes": 0.3, "No": 0.7}, "after": {"Yes": 0.6, "No": 0.4}, "total_variation": 0.3}}


def _layers(point: Record, seed: int) -> Record:
    changes = {"attracting": [0.2, 0.3, 0.4, 0.5], "noise": [0.1] * 4, "noise_deviation": [0.01] * 4, "word": "word"}
    return {"tokens": 200, "changes": changes}


def _scores(point: Record, seed: int) -> Record:
    before, after = ([[0.2, 0.2, value, 0.2]] * 4 for value in (0.1, 0.4))
    return {"word": "c", "tokens": [2], "words": list("abcd"), "before": before, "after": after}


def _flow(point: Record, seed: int) -> Record:
    rates = (("actual", 7.0), ("linear", 1.0), ("bound", 0.5))
    losses = {name: [3 * math.exp(-rate * time) for time in ntk_flow.TIMES] for name, rate in rates}
    return {**losses, "lambda_min": [2.0 for _ in ntk_flow.TIMES], "floor": 1e-12}


def _eigenvalue(point: Record, seed: int) -> Record:
    few = point["width"] ** 2 < point["samples"]
    share = 0.0 if few else 1 - point["samples"] / point["width"] ** 2
    return {"smallest_eigenvalue": 2 * share, "mean_eigenvalue": 2.0, "status": "singular" if few else "regular"}


def _loss(point: Record, seed: int) -> Record:
    parameters = 3 * point["width"] ** 2 + point["width"]
    return {"loss": 1e-6 if parameters > point["samples"] else 0.5, "parameters": parameters}


def _chain(point: Record, seed: int) -> Record:
    """A chain whose last matrix is close to a multiple of I by the square root of samples over parameters."""
    distance = (0.9 + 0.01 * seed) * math.sqrt(point["samples"]) / point["width"]
    least = {"kernel": 6.0, "block": 2.0, "centred": 1.5, "twice": 1.6}
    return {"scale": 2.0, "distance": distance, **{f"smallest_{name}": value for name, value in least.items()}}


def _halves(point: Record, seed: int) -> Record:
    value = robust(point["activation"], point["samples"], point["width"])
    trained = {"sensitivity": 1.01 * value, "linear_sensitivity": value, "difference": 3 / point["width"] ** 2}
    return {**trained, "loss": 1e-16, "start": 0.0, "kernel_gap": 1e-15}


def _pyramid(point: Record, seed: int) -> Record:
    narrow = point["width"] < point["samples"]
    singular = {"features_singular": narrow, "kernel_singular": False}
    sizes = {"features": -1e-16 if narrow else 1e-3, "kernel": 1e-2, "parameters": 20 * point["width"]}
    return {**sizes, **singular, "loss": 1e-6}


def sweep(point: Record, law: Callable[[str, int, int], float]) -> Record:
    """Sensitivities by activation, samples and width; terms of the proof on Gaussian inputs."""
    names, samples, widths = (point[key].split() for key in ("activations", "samples", "widths"))
    drawn = point["data"] == "gaussian"
    return {
        "points": [
            {"activation": name, "samples": int(count), "width": int(width)}
            | {"sensitivity": law(name, int(count), int(width))}
            | (
                {"interaction_centred": 1.02, "interaction_law": 1.0, "lower_bound": 0.01}
                if drawn and width == widths[-1]
                else {}
            )
            for name in names
            for count in samples
            for width in widths
        ]
    }


def robust(name: str, count: int, width: int) -> float:
    return math.sqrt(count) * (3 / math.sqrt(width) if name in ("square", "cos") else 1.0)


def steepness(point: Record, power: float) -> Record:
    """Lipschitz constants that grow with a power of n, the more the higher the layer."""
    value = (1 + point["layer"]) * float(point["n"]) ** power
    known = {"upper": 1e9, "rotary": point["model"] == "smollm2", "exponent": 5.0}
    record = {"lipschitz": value, "status": "converged", **known}
    return {**record, "published": 2 * value} if "protocol" in point else record


def _bounds(point: Record, seed: int) -> Record:
    constants = {"typical": 1.0, "adversarial": 2.0, "climbed": 3.0}
    lower = {"first_word": 1.5, "adversarial_bound": 1.0}
    upper = {"at_typical": 1.5, "ellipsoid": 4.0, "covariance": 5.0, "discrete": 9.0, "mean_field": None}
    return {**constants, **lower, **upper}


def between(R: float, share: float) -> float:
    """A number at a share of the way, in logarithms, from the lower to the upper bound of mean-field attention."""
    upper, lower = (1 + R**2) * math.exp(R**2) + R**2, R**2 / 8 * math.exp(R**2 / 4)
    return float(upper**share * lower ** (1 - share))


def _mean_field(point: Record, seed: int) -> Record:
    lower = between(point["R"], 0.0)
    value = (1 + 0.1 * seed) * between(point["R"], 0.5)
    upper = between(point["R"], 1.0)
    return {"value": value, "lower": lower, "two_point": 1.5 * lower, "upper": upper, "status": "locally converged"}


LAWS: dict[str, Law] = {
    **dict.fromkeys(("fig2-rf", "fig2-drf", "fig3-raf", "fig3-relu"), _sensitivity),
    "m-words": _words,
    "theorem51": _proof,
    "fig4": _generalization,
    "fig5": _penalised,
    "appendix-e": _gap,
    "fig1": _first,
    "fig3-layers": _layers,
    "fig3-scores": _scores,
    "ntk-chain": _chain,
    "ntk-flow": _flow,
    "ntk-halves": _halves,
    "ntk-lambda": _eigenvalue,
    "ntk-loss": _loss,
    "ntk-pyramid": _pyramid,
    **dict.fromkeys(("robust-rf", "robust-ntk"), lambda point, seed: sweep(point, robust)),
    "smooth-real": lambda point, seed: steepness(point, 0.25),
    "smooth-adversarial": lambda point, seed: steepness(point, 0.5),
    "smooth-bounds": _bounds,
    "meanfield": _mean_field,
}
