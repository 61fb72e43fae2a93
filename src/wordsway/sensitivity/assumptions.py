"""What the theorems assume of a map, its sizes and its data, each assumption with the numbers that it compares.

A theorem that holds "for k = Omega(D)" leaves the constant open, so that a single size can neither satisfy nor violate
it. Here the constant is 1: an assumption is met where the smaller side is at most the larger one. `Assumption.met` only
summarises the two numbers, which show how far they are apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from wordsway.activations import Activation, activation
from wordsway.checks import as_array, check_choice, check_rows, check_several, check_size
from wordsway.errors import InputError
from wordsway.maps import Attention, DeepRandomFeatures, RandomAttention, RandomFeatures
from wordsway.maps.catalogue import DEFAULT_ACTIVATION, DEFAULT_DEPTH, MAPS
from wordsway.records import Record, bars, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROUNDING = 1e-5  # of the norm of a row, more than that of float32
_ERRORS = 3.0  # standard errors by which an estimate may exceed what it is compared with
_SAME_ORDER = 10.0  # of k = Theta(D): how many times the smaller one the larger one may be


@dataclass(frozen=True)
class Assumption:
    """One assumption of a theorem, as an inequality: `value` of `quantity` is at most `limit`, that of `against`.

    Attributes
    ----------
    theorem, assumption : str
        As in the source.
    quantity, against : str
        What is compared; `against` is empty where nothing can be measured.
    value, limit : float or None
        None where the data that they need was not given.
    certain : bool or None
        Of an assumption that compares nothing, such as that phi is even: whether it is met.
    """

    theorem: str
    assumption: str
    quantity: str
    against: str = ""
    value: float | None = None
    limit: float | None = None
    certain: bool | None = None

    @property
    def met(self) -> bool | None:
        """Whether the inequality holds, with the constant 1 in O and Omega; None where it cannot be checked."""
        return self.certain if self.value is None or self.limit is None else self.value <= self.limit

    def to_dict(self) -> dict[str, Any]:
        names = ("theorem", "assumption", "quantity", "value", "against", "limit", "met")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False, repr=False)
class Assumptions(Record):
    """The assumptions of the theorems about a map, with the numbers that they compare: one row each.

    Attributes
    ----------
    map : str
    n, d : int or None
        Sizes of a context; None where no theorem needs them.
    checks : tuple of Assumption
        Empty where no theorem is about the map.
    """

    summary_fields: ClassVar[tuple[str, ...]] = ("map", "n", "d", "met", "not_met", "unknown")

    map: str
    n: int | None
    d: int | None
    checks: tuple[Assumption, ...]

    @property
    def met(self) -> int:
        return sum(check.met is True for check in self.checks)

    @property
    def not_met(self) -> int:
        return sum(check.met is False for check in self.checks)

    @property
    def unknown(self) -> int:
        return sum(check.met is None for check in self.checks)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Assumptions:
        """Return the record whose `to_dict` these values are."""
        rows = (
            {"certain" if name == "met" else name: part for name, part in row.items()} for row in values["assumptions"]
        )
        return cls(values["map"], values["n"], values["d"], tuple(Assumption(**row) for row in rows))

    def of(self, theorem: str) -> tuple[Assumption, ...]:
        """Return the assumptions of one theorem."""
        return tuple(check for check in self.checks if check.theorem == theorem)

    def to_dict(self) -> dict[str, Any]:
        return {"map": self.map, "n": self.n, "d": self.d, "assumptions": self.rows()}

    def rows(self) -> list[dict[str, Any]]:
        return [check.to_dict() for check in self.checks]

    def draw(self, ax: Axes) -> None:
        """Draw value / limit of each assumption; it is met up to 1."""
        known = [check for check in self.checks if check.value is not None and check.limit]
        bars(ax, {f"{one.theorem}: {one.assumption}": (one.value or 0) / (one.limit or 1) for one in known}, True)
        ax.axvline(1.0, color="0.5", linestyle="--")
        ax.set(xlabel="value / limit")


@dataclass(frozen=True)
class _Setting:
    """What the assumptions are about; None is not known."""

    n: int
    d: int
    k: int
    phi: Activation
    depth: int
    words: int
    samples: int | None
    contexts: Tensor | None  # N n d
    normalized: bool
    prediction: float | None
    gamma: float | None

    @property
    def size(self) -> int:
        return self.n * self.d

    def norms(self, theorem: str) -> Assumption:
        """Assumption 3.1."""
        assumption, quantity = "|x_j| = sqrt(d) (Assumption 3.1)", "largest error of |x_j| / sqrt(d)"
        if self.contexts is None and self.normalized:
            return Assumption(theorem, assumption, "rows are normalised", certain=True)
        if self.contexts is None:
            return Assumption(theorem, assumption, quantity, "rounding", None, _ROUNDING)
        lengths = torch.linalg.vector_norm(self.contexts, dim=-1) / math.sqrt(self.d)
        return Assumption(theorem, assumption, quantity, "rounding", float((lengths - 1).abs().max()), _ROUNDING)

    def lipschitz(self, theorem: str) -> Assumption:
        bound = self.phi.lipschitz
        value = bound if math.isfinite(bound) else None  # JSON has no infinity
        known = f"Lipschitz constant of {self.phi.name}"
        return Assumption(theorem, "phi is Lipschitz", known, value=value, certain=value is not None)

    def wide(self, theorem: str) -> Assumption:
        return Assumption(theorem, "k = Omega(D)", "D = n d", "k", float(self.size), float(self.k))

    def trained(self, theorem: str) -> list[Assumption]:
        """What both theorems on generalization assume of the model before it sees X."""
        return [
            Assumption(theorem, "|f(X, theta*)| = O(1)", "|f(X, theta*)|", "that of a label", self.prediction, 1.0),
            Assumption(theorem, "gamma < 2 (Assumption 6.1)", "gamma", "its limit", self.gamma, 2.0),
        ]


def _theorem41(setting: _Setting, name: str) -> list[Assumption]:
    return [setting.norms(name), setting.lipschitz(name), setting.wide(name)]


def _remark42(setting: _Setting, name: str) -> list[Assumption]:
    few = Assumption(name, "m = o(n)", "m", "n", float(setting.words), float(setting.n))
    return [*_theorem41(setting, name), few]


def _theorem43(setting: _Setting, name: str) -> list[Assumption]:
    k, size = setting.k, setting.size
    order = Assumption(
        name, "k = Theta(D)", "larger of k / D and D / k", "same order", max(k / size, size / k), _SAME_ORDER
    )
    deep = Assumption(name, "L = o(log k)", "L", "log k", float(setting.depth), math.log(k))
    return [setting.norms(name), setting.lipschitz(name), order, deep]


def _theorem51(setting: _Setting, name: str) -> list[Assumption]:
    wide = setting.d / math.log(setting.d) ** 4 if setting.d > 1 else math.inf
    limit = wide if math.isfinite(wide) else None
    short = Assumption(name, "d / log^4 d = Omega(n)", "n", "d / log^4 d", float(setting.n), limit)
    return [setting.norms(name), short]


def _theorem62(setting: _Setting, name: str) -> list[Assumption]:
    return [*_theorem41(setting, name), *setting.trained(name)]


def _theorem63(setting: _Setting, name: str) -> list[Assumption]:
    return [*_appendix_e(setting, name), *setting.trained(name)]


def _appendix_e(setting: _Setting, name: str) -> list[Assumption]:
    """What Lemmas B.1 and B.2 assume."""
    samples, size = setting.samples, setting.size
    log = None if samples is None else math.log(samples)
    many = None if samples is None or log is None else samples * log**3
    more = None if samples is None or log is None else samples * log**4
    mean, spread = (None, None) if setting.contexts is None else _law(setting.contexts)
    return [
        *_theorem41(setting, name),
        Assumption(name, "phi is not linear", setting.phi.name, certain=setting.phi.name != "identity"),
        Assumption(name, "N log^3 N = o(k)", "N log^3 N", "k", many, float(setting.k)),
        Assumption(name, "N log^4 N = o(D^2)", "N log^4 N", "D^2", more, float(size) ** 2),
        Assumption(name, "samples are i.i.d.", "dependence of samples"),
        Assumption(name, "E X = 0", "|E X|^2 / D, estimated", "3 standard errors", *(mean or (None, None))),
        Assumption(
            name,
            "Lipschitz concentration",
            "variance of X along one direction (a necessary condition)",
            "1 + 3 standard errors",
            *(spread or (None, None)),
        ),
    ]


def _robust_rf(setting: _Setting, name: str) -> list[Assumption]:
    samples, slope = setting.samples, abs(setting.phi.mean_derivative)
    count = None if samples is None else float(samples)
    return [
        Assumption(name, "p >> N", "N", "p = k", count, float(setting.k)),
        Assumption(name, "p >> d", "d", "p = k", float(setting.d), float(setting.k)),
        Assumption(name, "d >> N^(2/3)", "N^(2/3)", "d", None if count is None else count ** (2 / 3), float(setting.d)),
        Assumption(name, "E phi' is not 0", f"|E phi'| of {setting.phi.name}", value=slope, certain=slope > 1e-9),
    ]


def _robust_ntk(setting: _Setting, name: str) -> list[Assumption]:
    count = None if setting.samples is None else float(setting.samples)
    k, d = float(setting.k), float(setting.d)
    return [
        Assumption(name, "p >> N", "N", "p = k d", count, k * d),
        Assumption(name, "k = O(d)", "k", "d", k, d),
        Assumption(name, "N = O(k)", "N", "k", count, k),
        Assumption(name, "phi is even", setting.phi.name, certain=setting.phi.parity == "even"),
    ]


_Check = Callable[[_Setting, str], list[Assumption]]
THEOREMS: Mapping[str, _Check] = MappingProxyType(
    {
        "Theorem 4.1": _theorem41,
        "Remark 4.2": _remark42,
        "Theorem 4.3": _theorem43,
        "Theorem 5.1": _theorem51,
        "Remark 5.2": _theorem51,
        "Theorem 6.2": _theorem62,
        "Theorem 6.3": _theorem63,
        "Appendix E": _appendix_e,
        "slides, RF": _robust_rf,
        "slides, NTK": _robust_ntk,
    }
)
_OF_MAP = {"drf": ["Theorem 4.3"], "raf": ["Theorem 5.1"], "qkv": ["Remark 5.2"], "ntk": ["slides, NTK"]}


def assumptions(
    phi: str | RandomFeatures | DeepRandomFeatures | RandomAttention | Attention,
    X: Any = None,
    *,
    n: int | None = None,
    d: int | None = None,
    k: int | None = None,
    depth: int | None = None,
    activation: str | Activation | None = None,
    samples: int | None = None,
    words: int = 1,
    normalized: bool = False,
    prediction: float | None = None,
    gamma: float | None = None,
    theorems: Sequence[str] | None = None,
) -> Assumptions:
    """Compare sizes and data with what the theorems about a map assume.

    Parameters
    ----------
    phi : map, or its name
        A name of `wordsway maps`, or "ntk". Sizes of a map object are its own.
    X : array (n, d) or (N, n, d), optional
        A context, or training samples. Without it, assumptions on data are listed and not checked.
    n, d : int, optional
        Sizes of a context, where neither X nor the map has them.
    k, depth, activation : optional
        Width, layers and activation of a named map; default: those of `wordsway measure`.
    samples : int, optional
        Number N of training samples, default: that of X. With it, the theorems on generalization are included.
    words : int
        Number m of words that move; above 1, Remark 4.2 takes the place of Theorem 4.1.
    normalized : bool
        Whether the rows of contexts are known to have norm sqrt(d), where X is not given.
    prediction, gamma : float, optional
        f(X, theta*) of the model before it is trained on X, and gamma of (13).
    theorems : sequence of str, optional
        Names of `wordsway.sensitivity.assumptions.THEOREMS`; default: those about the map.

    Returns
    -------
    Assumptions

    Notes
    -----
    With N samples X_1, ..., X_N, |E X|^2 / D is estimated by the mean of <X_i, X_j> / D over pairs i != j, without
    bias. Its standard error is that of samples with mean 0.

    Lipschitz concentration bounds the variance along every direction by a constant. The direction in which the first
    half of the samples (those of even number) varies most is measured on the other half. Independent coordinates have
    the variance 1. A small variance does not prove concentration, a large one is against it. Cost: O(N^2 n d).
    """
    check_size(words, "words")
    contexts = _contexts(X)
    name, sizes = _sizes(phi, contexts, {"n": n, "d": d, "k": k, "depth": depth})
    law = _activation(phi, activation)
    count = samples if samples is not None else len(contexts) if contexts is not None and len(contexts) > 1 else None
    if count is not None:
        check_size(count, "samples")
    setting = _Setting(
        **sizes,
        phi=law,
        words=words,
        samples=count,
        contexts=contexts,
        normalized=normalized,
        prediction=None if prediction is None else abs(prediction),
        gamma=gamma,
    )
    if theorems is None:
        chosen = _theorems_of(name, words, count)
    else:
        check_several(theorems, "theorems")
        chosen = [check_choice("theorems", one, list(THEOREMS)) for one in theorems]
    checks = tuple(check for one in chosen for check in THEOREMS[one](setting, one))
    return Assumptions(name, setting.n, setting.d, checks)


def _theorems_of(name: str, words: int, samples: int | None) -> list[str]:
    """Return the theorems about a map, by its name; none for attention with other scores than softmax."""
    if name != "rf":
        return _OF_MAP.get(name, [])
    about = ["Remark 4.2" if words > 1 else "Theorem 4.1"]
    return about if samples is None else [*about, "Theorem 6.2", "Theorem 6.3"]


def _contexts(X: Any) -> Tensor | None:
    """Return samples as (N, n, d); rows of any norm, because that is an assumption to check."""
    if X is None:
        return None
    values = as_array(X, "X")
    if values.ndim not in (2, 3):
        raise InputError(f"X must be a context (n, d) or samples (N, n, d), got shape {tuple(values.shape)}")
    contexts = values.reshape(-1, *values.shape[-2:])
    check_rows(contexts)
    return contexts


def _sizes(phi: Any, contexts: Tensor | None, given: dict[str, int | None]) -> tuple[str, dict[str, int]]:
    """Return the name of a map with n, d, k and depth, each from the map, the data, the arguments or by default."""
    own: dict[str, int | None] = dict.fromkeys(given)
    if isinstance(phi, str):
        name = check_choice("phi", phi, [*MAPS, "ntk"])
    else:
        name = _name(phi)
        own |= {size: getattr(phi, size, None) for size in given}
    data = {} if contexts is None else {"n": contexts.shape[1], "d": contexts.shape[2]}
    sizes: dict[str, int] = {}
    for size, value in given.items():
        known = {check_size(one, size) for one in (value, own[size], data.get(size)) if one is not None}
        if len(known) > 1:
            raise InputError(f"{size} must be the same everywhere, got {' and '.join(map(str, sorted(known)))}")
        if known:
            sizes[size] = known.pop()
    for size in ("n", "d"):
        if size not in sizes and not (size == "n" and name == "ntk"):
            raise InputError(f"{size} must be known, got neither X nor {size}: give one of them")
    sizes.setdefault("n", 1)
    sizes.setdefault("k", sizes["n"] * sizes["d"] if name in ("rf", "drf") else sizes["d"])
    sizes.setdefault("depth", DEFAULT_DEPTH if name == "drf" else 1)
    return name, sizes


def _name(phi: Any) -> str:
    """Return the name under which theorems know a map object."""
    if isinstance(phi, RandomFeatures | DeepRandomFeatures):
        return "rf" if isinstance(phi, RandomFeatures) else "drf"
    if not isinstance(phi, RandomAttention | Attention):
        raise InputError(f"phi must be a map that theorems are about or its name, got {type(phi).__name__}")
    attention = phi if isinstance(phi, Attention) else phi.attention
    if attention.score.name != "softmax":
        return f"{attention.score.name}-raf"
    if isinstance(phi, RandomAttention):
        return "raf"
    return "qkv" if attention.heads == 1 and not attention.causal and attention.plain else "attention"


def _activation(phi: Any, given: str | Activation | None) -> Activation:
    own = getattr(phi, "activation", None)
    if own is not None and given is not None and activation(given).name != own.name:
        raise InputError(f"activation must be that of the map, {own.name}: leave it out")
    return activation(own if own is not None else DEFAULT_ACTIVATION if given is None else given)


def _law(contexts: Tensor) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """Estimate |E X|^2 / D, and the variance along the direction of a half of the samples, each with its limit."""
    count, size = len(contexts), contexts[0].numel()
    if count < 2:
        return None, None
    flat = contexts.reshape(count, size).double()
    gram = flat @ flat.mT / size  # N N
    pairs = gram[~torch.eye(count, dtype=torch.bool, device=gram.device)]
    error = math.sqrt(2 * float(pairs.square().mean()) / (count * (count - 1)))
    mean = (float(pairs.mean()), _ERRORS * error)
    if count < 4:
        return mean, None
    first = gram[::2, ::2]
    centred = first - first.mean(0) - first.mean(1, keepdim=True) + first.mean()
    values, vectors = torch.linalg.eigh(centred)
    top = vectors[:, -1] - vectors[:, -1].mean()
    if not values[-1] > 0:
        return mean, (0.0, 1.0)  # all samples are the same
    along = gram[1::2, ::2] @ top * math.sqrt(size / float(values[-1]))  # of the other half
    return mean, (float(along.var()), 1 + _ERRORS * math.sqrt(2 / (len(along) - 1)))


def summarise(records: Sequence[Assumptions]) -> list[dict[str, Any]]:
    """Return one row per assumption over several settings: the ranges of its numbers, and in how many it is met.

    `met` is False where it is not met in some of them, and None where it cannot be checked in some.
    """
    groups: dict[tuple[str, str], list[Assumption]] = {}
    for record in records:
        for check in record.checks:
            groups.setdefault((check.theorem, check.assumption), []).append(check)
    return [
        {"theorem": theorem, "assumption": assumption, "measured": _measured(checks), "met": _all_met(checks)}
        for (theorem, assumption), checks in groups.items()
    ]


def _all_met(checks: Sequence[Assumption]) -> bool | None:
    outcomes = {check.met for check in checks}
    return False if False in outcomes else None if None in outcomes else True


def _measured(checks: Sequence[Assumption]) -> str:
    known = [check for check in checks if check.met is not None]
    if not known:
        return f"{checks[0].quantity}: not known"
    names = list(dict.fromkeys(check.quantity for check in known))
    text = ", ".join(names)
    if values := [check.value for check in known if check.value is not None]:
        text += f" = {_range(values)}"
    if limits := [check.limit for check in known if check.limit is not None]:
        text += f" against {known[0].against} = {_range(limits)}"
    met = sum(check.met is True for check in known)
    return text if met == len(checks) or len(checks) == 1 else f"{text}; met in {met} of {len(checks)} settings"


def _range(values: Sequence[float]) -> str:
    ends = [_short(value) for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e9 else number(value, 3)
