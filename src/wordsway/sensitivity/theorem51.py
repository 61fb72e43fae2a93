"""The objects of the proof of Theorem 5.1: softmax attention is sensitive to any single word (appendix D).

One vector is aligned with many words (Lemma D.1). Two perturbations made from it raise the scores of many rows (D.2 and
D.3), so that these rows give almost all of their attention to the moved word (D.4). As the two perturbations are far
apart, one of them moves these rows far (D.5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from wordsway.checks import as_context, check_positive, check_word, row_name
from wordsway.contexts import perturb
from wordsway.errors import InputError, NumericalError
from wordsway.maps import Attention, RandomAttention
from wordsway.memory import ResourceUsage
from wordsway.records import Record
from wordsway.seeds import generator, normal
from wordsway.threads import suited

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALIGNED = 0.1  # Lemma D.1 counts the rows with (x_j . delta)^2 >= 0.01 d^2 / n
_DRAWS = 32  # each in both signs; a draw is expected to have 46% of its rows aligned in one of the signs
_UNIT = 1e-5  # relative error of the norm of a row, more than the rounding of float32


@dataclass(frozen=True, eq=False, repr=False)
class Theorem51(Record):
    """What the proof of Theorem 5.1 constructs at one context, with the constants that its O-notation hides.

    Attributes
    ----------
    word : int
        Position i of the word that moves.
    n, d : int
    assumption : float
        d / (n log^4 d). The theorem assumes that it is at least a constant; at 1 the proof's d / sqrt(n) exceeds
        sqrt(d) log^2 d.
    direction : Tensor (d,)
        delta* of Lemma D.1, with norm at most sqrt(d).
    alignments : Tensor (n,)
        (x_j . delta*) sqrt(n) / d: constants of Lemma D.1, at least 0.1 for the rows that it counts.
    perturbations : Tensor (2, d)
        Delta_1* and Delta_2* of Lemma D.3, with norms at most sqrt(d).
    scores : Tensor (2, n)
        (x_j . W Delta_k) / sqrt(d): how much each perturbation adds to the score that row j gives to the word.
    distances : Tensor (2, n)
        Distance of the attention of row j from e_i (Lemma D.4); row i itself is not part of the lemma.
    distance : float
        Rows within this distance for both perturbations are captured; the lemma has o(1 / sqrt(d)).
    changes : Tensor (2,)
        Exact relative change of the features by each perturbation.
    proved : float
        What Lemma D.5 concludes from the distances: a lower bound on the larger change; 0 where no row is close enough.
    cost : ResourceUsage
    """

    summary_fields = ("value", "word", "assumption", "alignment", "aligned", "captured", "separation", "proved")

    word: int
    n: int
    d: int
    assumption: float
    direction: Tensor
    alignments: Tensor
    perturbations: Tensor
    scores: Tensor
    distances: Tensor
    distance: float
    changes: Tensor
    proved: float
    cost: ResourceUsage
    value_kind: str = "lower bound with a witness"

    @property
    def value(self) -> float:
        """The larger change: a lower bound on the word sensitivity."""
        return float(self.changes.max())

    @property
    def delta(self) -> Tensor:
        """The witness: the perturbation with the larger change, (d,)."""
        return self.perturbations[int(self.changes.argmax())]

    @property
    def alignment(self) -> float:
        """Median over rows of the constant of Lemma D.1."""
        return float(self.alignments.median())

    @property
    def aligned(self) -> float:
        """Share of the rows that Lemma D.1 counts, those with x_j . delta* >= 0.1 d / sqrt(n)."""
        return float((self.alignments >= ALIGNED).double().mean())

    @property
    def score(self) -> float:
        """Median over rows of the smaller added score, divided by log^2 d: the constant of Lemma D.3."""
        return float(self.scores.amin(0).median()) / math.log(self.d) ** 2

    @property
    def separation(self) -> float:
        """|Delta_1* - Delta_2*| / sqrt(d)."""
        return float(torch.linalg.vector_norm(self.perturbations[0] - self.perturbations[1])) / math.sqrt(self.d)

    @property
    def captured_rows(self) -> Tensor:
        """Rows other than i that both perturbations capture, (n,) of bool."""
        captured = self.distances.amax(0) <= self.distance
        captured[self.word] = False
        return captured

    @property
    def captured(self) -> float:
        """Share of captured rows among those other than i."""
        return int(self.captured_rows.sum()) / (self.n - 1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "word": self.word,
            "n": self.n,
            "d": self.d,
            "assumption": self.assumption,
            "alignment": self.alignment,
            "aligned": self.aligned,
            "score": self.score,
            "separation": self.separation,
            "distance": self.distance,
            "captured": self.captured,
            "proved": self.proved,
            "sensitivity": self.value,
            "value_kind": self.value_kind,
            **self.cost.to_dict(),
        }

    def rows(self) -> list[dict[str, Any]]:
        captured = self.captured_rows
        return [
            {
                "row": j,
                "alignment": float(self.alignments[j]),
                **{f"score_{k + 1}": float(self.scores[k, j]) for k in range(2)},
                **{f"distance_{k + 1}": float(self.distances[k, j]) for k in range(2)},
                "captured": bool(captured[j]),
            }
            for j in range(self.n)
        ]

    def draw(self, ax: Axes) -> None:
        others = torch.arange(self.n) != self.word
        for k, (scores, distances) in enumerate(zip(self.scores.cpu(), self.distances.cpu(), strict=True), start=1):
            ax.scatter(scores[others].tolist(), distances[others].tolist(), s=12, label=f"perturbation {k}")
        ax.axhline(self.distance, color="0.5", linestyle="--", label="captured below")
        ax.set(xlabel="added score", ylabel="distance of the attention from the word")
        ax.legend()


def theorem51(
    phi: RandomAttention | Attention,
    X: Any,
    word: int = 0,
    *,
    distance: float = 0.5,
    seed: int = 0,
) -> Theorem51:
    """Construct the perturbations of the proof of Theorem 5.1 (appendix D) and measure each of its steps.

    Parameters
    ----------
    phi : RandomAttention or Attention
        Softmax attention with one head, not causal, without biases: softmax(X W X^T / sqrt(d)) X, or with queries,
        keys, values and output, as in Remark 5.2; then W is the product of queries and keys.
    X : array (n, d)
        Context with rows of norm sqrt(d), of rank below d, n >= 2.
    word : int
        The word i that moves.
    distance : float
        Rows whose attention is within this distance of e_i are captured. The lemma has o(1 / sqrt(d)), which at the
        sizes of experiments holds for few rows.
    seed : int
        Seed of the candidates and of the direction that separates the two perturbations.

    Returns
    -------
    Theorem51
        A lower bound on the word sensitivity with its witness; `wordsway.word_sensitivity` searches for larger ones.

    Notes
    -----
    With X^T = U D V^T, candidates for delta* are sqrt(d / n) U eps: 64 vectors eps on the sphere, drawn as in the
    proof, and eps = V^T s with the signs s that maximise the sum over words of x_j . delta. The candidate with the most
    rows with x_j . delta >= 0.1 d / sqrt(n) is taken. The proof continues with Delta_k = C W^T (delta* +- v) / 2, v
    orthogonal to all words; C is as large as the ball allows. Cost: a singular value decomposition of X and a few
    evaluations of the map.

    Examples
    --------
    >>> import wordsway as ws
    >>> phi, X = ws.RandomAttention(768), ws.gaussian_context(16, 768)
    >>> proof = ws.theorem51(phi, X)
    >>> print(f"{proof.aligned:.0%} of the rows aligned, {proof.captured:.0%} captured")
    100% of the rows aligned, 73% captured
    >>> print(f"proved {proof.proved:.2f}, change {proof.value:.2f}")
    proved 1.05, change 3.08
    """
    attention = _one_softmax_head(phi)
    context = as_context(X).detach().double()
    attention.check(context)
    n, d = context.shape
    i = check_word(n, word)
    _check_context(context)
    check_positive(distance, "distance")
    with ResourceUsage() as usage, suited(attention.operations(context)):
        left, basis = _bases(context)
        direction = _aligned_direction(context, left, basis, seed)
        deltas = _perturbations(attention, basis, direction, seed)
        distances = torch.stack([_distances(attention, perturb(context, i, delta), i) for delta in deltas])
        changes, _ = attention.respond(context, i).change(deltas, gradient=False)
        scores = deltas @ _score_forms(attention, context).mT
        proved = _conclude(attention, context, i, deltas, distances)
    return Theorem51(
        word=i,
        n=n,
        d=d,
        assumption=d / (n * math.log(d) ** 4),
        direction=direction,
        alignments=context @ direction * (math.sqrt(n) / d),
        perturbations=deltas,
        scores=scores,
        distances=distances,
        distance=float(distance),
        changes=changes,
        proved=proved,
        cost=usage.computed_in(context.dtype, context.device, 1),
    )


def _one_softmax_head(phi: object) -> Attention:
    """Return the attention of a map that the theorem or Remark 5.2 is about."""
    attention = phi.attention if isinstance(phi, RandomAttention) else phi
    rule = "Theorem 5.1 is about softmax attention with one head, not causal, without biases and rotary positions"
    if not isinstance(attention, Attention):
        raise InputError(f"{rule}, got {type(phi).__name__}: use RandomAttention")
    if attention.score.name != "softmax" or attention.heads != 1 or attention.causal or not attention.plain:
        raise InputError(f"{rule}, got another member of the attention family: use RandomAttention")
    return attention


def _check_context(context: Tensor) -> None:
    n, d = context.shape
    if n < 2 or d < 2:
        raise InputError(f"Theorem 5.1 needs a context with n, d >= 2, got {n} x {d}")
    errors = (torch.linalg.vector_norm(context, dim=1) / math.sqrt(d) - 1).abs()
    worst = int(errors.argmax())
    if float(errors[worst]) > _UNIT:
        norm = float(torch.linalg.vector_norm(context[worst]))
        raise InputError(f"rows must have the norm sqrt(d), got {norm:.4g} for {row_name([worst])}: use normalize(X)")


def _bases(context: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal bases of the columns and of the rows of X, (n, r) and (r, d); the rank must be below d."""
    n, d = context.shape
    left, values, right = torch.linalg.svd(context, full_matrices=False)
    rank = int((values > max(n, d) * torch.finfo(values.dtype).eps * values[0]).sum())
    if rank == d:
        raise InputError(f"the words must not span all {d} dimensions, got {n} words of rank {rank}: use fewer words")
    return left[:, :rank], right[:rank]


def _aligned_direction(context: Tensor, left: Tensor, basis: Tensor, seed: int) -> Tensor:
    """delta* of Lemma D.1 in the sign of Lemma D.2: the candidate that is aligned with most rows, (d,)."""
    n, d = context.shape
    rank = len(basis)
    drawn = normal(generator(seed, "theorem 5.1 directions"), (_DRAWS, rank), device=context.device)
    sphere = drawn * (math.sqrt(rank) / torch.linalg.vector_norm(drawn, dim=1, keepdim=True))
    # The sum of x_j . delta is linear in the signs, so each sign is best on its own, whatever the others are.
    sums = left @ (basis @ context.sum(0))
    signs = torch.where(sums < 0, -1.0, 1.0).to(context)
    epsilons = torch.cat([(signs @ left)[None], sphere, -sphere])
    candidates = math.sqrt(d / n) * (epsilons @ basis)  # B d
    aligned = candidates @ context.mT * (math.sqrt(n) / d)  # B n
    counts, medians = (aligned >= ALIGNED).sum(1).tolist(), aligned.median(1).values.tolist()
    return candidates[max(range(len(candidates)), key=lambda place: (counts[place], medians[place]))]


def _score_forms(attention: Attention, rows: Tensor) -> Tensor:
    """Linear forms that rows x put on the moved word: W^T x / sqrt(d), whose product with Delta is the added score."""
    queries = attention.apply("query", rows)  # 1 rows q
    return attention.pull("key", queries) / math.sqrt(queries.shape[-1])


def _perturbations(attention: Attention, basis: Tensor, direction: Tensor, seed: int) -> Tensor:
    """Delta_1* and Delta_2* of Lemma D.3, (2, d)."""
    d = len(direction)
    away = normal(generator(seed, "theorem 5.1 separation"), d, device=direction.device)
    for _ in range(2):  # the second pass removes what rounding left in the span of the words
        away = away - (away @ basis.mT) @ basis
    away = away * (math.sqrt(d) / torch.linalg.vector_norm(away))
    images = _score_forms(attention, torch.stack([direction + away, direction - away]))  # C absorbs the factor
    longest = float(torch.linalg.vector_norm(images, dim=1).max())
    if not longest > 0:
        raise NumericalError("the weights must not send the words to 0, got scores that no perturbation changes")
    return images * (math.sqrt(d) / longest)


def _distances(attention: Attention, moved: Tensor, word: int) -> Tensor:
    """Distances of the rows of attention weights from e_i, (n,)."""
    weights = attention.pattern(moved)[0]  # n n
    weights[:, word] = 0.0
    weights[:, word] = weights.sum(1)  # 1 - w_i without cancellation
    return weights.square().sum(1).sqrt()


def _conclude(attention: Attention, context: Tensor, word: int, deltas: Tensor, distances: Tensor) -> float:
    """The bound of Lemma D.5 on the larger relative change, from the distances.

    Row j of the features is within distance |X^i(Delta)|_op of x_i + Delta (133), or of its value. By the triangle
    inequality (135) the two changes c_1, c_2 of the row sum to at least what remains of |Delta_1 - Delta_2|; hence
    c_1^2 + c_2^2 is at least half of its square, and one of the perturbations has at least half of the sum over rows.
    """
    norms = torch.stack(
        [torch.linalg.matrix_norm(_values(attention, perturb(context, word, delta)), 2) for delta in deltas]
    )
    separation = torch.linalg.vector_norm(_values(attention, deltas[:1] - deltas[1:]))
    remains = (separation - norms @ distances).clamp(min=0)  # n
    remains[word] = 0.0
    return float(torch.linalg.vector_norm(remains) / (2 * torch.linalg.vector_norm(attention(context))))


def _values(attention: Attention, rows: Tensor) -> Tensor:
    """What a row of features is if it gives all of its attention to one of these rows."""
    return attention.join(attention.apply("value", rows))
