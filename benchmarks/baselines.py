"""What a good engineer writes in some thirty lines for one kernel: batched, in closed form, in float32 where it helps.

Nothing of wordsway's maps, responses or searches is used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from scipy import linalg
from torch import Tensor


def swaps(weight: Tensor, X: Tensor, word: int, embeddings: Tensor) -> Tensor:
    """Relative change of raf (3) for every row of `embeddings` in place of a word, in closed form, float64.

    With w_j the new weight of row j on the word (w0_j before) and c_j the mean of row j over the other words, row j
    changes by (w0_j - w_j) c_j + w_j e - w0_j x, so that its square needs products of c_j, e and x only. The moved row
    is recomputed.
    """
    scale = 1 / math.sqrt(X.shape[1])
    queries, keys = X @ weight * scale, X @ weight.mT * scale  # n d: the scores of e are e @ queries.mT and e @ keys.mT
    scores = queries @ X.mT
    P = torch.softmax(scores, dim=-1)
    features, x = P @ X, X[word]
    others = scores.clone()
    others[:, word] = -torch.inf
    c, rest, before = torch.softmax(others, dim=-1) @ X, others.logsumexp(-1), P[:, word]
    base = before.square() * x.square().sum()
    squares = torch.empty(len(embeddings), dtype=X.dtype)
    for part, out in zip(torch.split(embeddings, 2048), torch.split(squares, 2048), strict=True):
        w = torch.sigmoid(part @ queries.mT - rest)  # v n
        step = before - w
        change = step.square() * c.square().sum(-1) + w.square() * part.square().sum(-1, keepdim=True) + base
        change += 2 * (step * w * (part @ c.mT) - step * before * (c @ x) - w * before * (part @ x)[:, None])
        own = part @ keys.mT
        own[:, word] = (part @ weight * part).sum(-1) * scale
        p = torch.softmax(own, dim=-1)
        moved = p @ X + p[:, word, None] * (part - x) - features[word]
        change[:, word] = moved.square().sum(-1)
        out.copy_(change.sum(-1))
    values: Tensor = squares.clamp_min(0).sqrt() / torch.linalg.vector_norm(features)
    return values


def attention_search(
    weight: Tensor, X: Tensor, word: int, score: str, radius: float, incremental: bool = True
) -> float:
    """Largest relative change of raf or relu-raf that batched L-BFGS in float32 finds; its value again in float64."""
    change = (_rows_that_move if incremental else _whole_map)(weight.float(), X.float(), word, score)
    found = lbfgs(change, X.shape[1], radius)
    best = found[change(found).argmax()]
    return float(_whole_map(weight, X, word, score)(best[None].double()))


Change: TypeAlias = Callable[[Tensor], Tensor]  # Delta (B, d) -> relative change (B,)


def _whole_map(weight: Tensor, X: Tensor, word: int, score: str) -> Change:
    """The map at a batch of contexts, one for each Delta."""
    scale = 1 / math.sqrt(X.shape[1])

    def phi(contexts: Tensor) -> Tensor:
        scores = contexts @ weight @ contexts.mT * scale
        if score == "softmax":
            return torch.softmax(scores, dim=-1) @ contexts
        gains = scores.relu()
        return gains / gains.sum(-1, keepdim=True).clamp_min(1e-30) @ contexts

    base = phi(X)
    place = torch.nn.functional.one_hot(torch.tensor(word), len(X)).to(X)[:, None]  # n 1
    norm = torch.linalg.vector_norm(base)
    return lambda delta: (phi(X + place * delta[:, None]) - base).flatten(1).norm(dim=1) / norm


def _rows_that_move(weight: Tensor, X: Tensor, word: int, score: str) -> Change:
    """In closed form, O(n d + d^2) for each Delta: what `swaps` computes for a word x + Delta."""
    scale, x = 1 / math.sqrt(X.shape[1]), X[word]
    queries, keys = X @ weight * scale, X @ weight.mT * scale
    scores = queries @ X.mT
    gain = torch.exp if score == "softmax" else torch.relu
    shift = scores.amax(-1) if score == "softmax" else torch.zeros(len(X))
    gains = gain(scores - shift[:, None])
    total = gains.sum(-1).clamp_min(1e-30)
    features, before = gains @ X / total[:, None], gains[:, word] / total
    rest = total - gains[:, word]
    c = (gains @ X - gains[:, word, None] * x) / rest.clamp_min(1e-30)[:, None]
    f = x - c  # n d
    lengths, others, norm = f.square().sum(-1), torch.arange(len(X)) != word, torch.linalg.vector_norm(features)
    reading = torch.cat([queries, f, keys, weight.mT * scale]).mT.contiguous()  # d 3n+d

    def change(delta: Tensor) -> Tensor:
        t, along, own, query = torch.split(delta @ reading, [len(X)] * 3 + [X.shape[1]], dim=1)
        moved = gain(scores[:, word] + t - shift)
        w = moved / (rest + moved).clamp_min(1e-30)
        step = w - before
        rows = step.square() * lengths + 2 * step * w * along + w.square() * delta.square().sum(-1, keepdim=True)
        # the word's score of itself gains a quadratic form too
        itself = (query * (x + delta)).sum(-1) + (x @ weight * scale * delta).sum(-1) - own[:, word]
        new = scores[word] + own + torch.nn.functional.one_hot(torch.tensor(word), len(X)) * itself[:, None]
        p = torch.softmax(new, -1) if score == "softmax" else new.relu() / new.relu().sum(-1, True).clamp_min(1e-30)
        line = p @ X + p[:, word, None] * delta - features[word]
        value: Tensor = ((rows * others).sum(-1) + line.square().sum(-1)).clamp_min(1e-30).sqrt() / norm
        return value

    return change


def lbfgs(change: Change, d: int, radius: float, starts: int = 16, steps: int = 40, memory: int = 8) -> Tensor:
    """Points (starts, d) of the ball that L-BFGS with backtracking reaches from random directions, all at once.

    The variable z is free: Delta = z where |z| <= radius, radius z / |z| beyond.
    """

    def ball(z: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        return z * (radius / length).clamp_max(1.0)

    def climb(z: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            z = z.detach().requires_grad_(True)
            value = change(ball(z))
            (gradient,) = torch.autograd.grad(value.sum(), z)
        return value.detach(), gradient

    z = torch.randn(starts, d, generator=torch.Generator().manual_seed(0))
    z *= radius / z.norm(dim=1, keepdim=True)
    for _ in range(5):  # generalised power iterations
        z = climb(z)[1]
        z *= radius / z.norm(dim=1, keepdim=True).clamp_min(1e-30)
    value, gradient = climb(z)
    rate, pairs = torch.ones(starts, 1), list[tuple[Tensor, Tensor, Tensor]]()
    for _ in range(steps):
        direction, amounts = gradient, []
        for s, y, rho in reversed(pairs):
            amounts.append(rho * (s * direction).sum(1, keepdim=True))
            direction = direction - amounts[-1] * y
        if pairs:
            s, y, rho = pairs[-1]
            direction = direction * torch.where(rho > 0, (s * y).sum(1, True) / y.square().sum(1, True), 1.0)
        else:
            direction = direction * 0.1 * radius / gradient.norm(dim=1, keepdim=True).clamp_min(1e-30)
        for (s, y, rho), amount in zip(pairs, reversed(amounts), strict=True):
            direction = direction + s * (amount - rho * (y * direction).sum(1, keepdim=True))
        trial = z + rate * direction
        new, slope = climb(trial)
        better = (new > value)[:, None]
        s, y = torch.where(better, trial - z, 0.0), torch.where(better, gradient - slope, 0.0)
        product = (s * y).sum(1, keepdim=True)
        pairs = [*pairs, (s, y, torch.where(product > 1e-12, 1 / product.clamp_min(1e-12), 0.0))][-memory:]
        gained = float(((new - value) / value).max())
        z, gradient = torch.where(better, trial, z), torch.where(better, slope, gradient)
        value = torch.maximum(value, new)
        rate = torch.where(better, 1.0, rate / 4)
        if gained < 1e-6:
            break
    return ball(z)


def tangent_kernel(weights: Sequence[Tensor], X: Tensor) -> Tensor:
    """The NTK (N, N) of a tanh network: per weight, the Gram matrices of its inputs and of what is propagated back."""
    F = [X]
    for W in weights[:-1]:
        F.append(torch.tanh(F[-1] @ W.mT))
    K, B = F[-1] @ F[-1].mT, weights[-1].expand(len(X), -1)
    for k in range(len(F) - 2, -1, -1):
        B = B * (1 - F[k + 1].square())
        K += (F[k] @ F[k].mT) * (B @ B.mT)
        B = B @ weights[k]
    return K


def robustness(X: Tensor, y: Tensor, x: Tensor, width: int, seed: int, rows: int = 10_240) -> float:
    """|x| |grad f(x)| of tanh random features as version 0.1 had it: float64, one triangle, weights drawn twice."""
    count, d = X.shape

    def blocks() -> Iterator[Tensor]:
        source = np.random.default_rng(seed)
        for start in range(0, width, rows):
            yield torch.from_numpy(source.standard_normal((min(rows, width - start), d))).div_(math.sqrt(d))

    half, kept = np.zeros((count, count), order="F"), []
    for V in blocks():
        kept.append(torch.tanh(X @ V.mT))
        half = linalg.blas.dsyrk(1.0, kept[-1].numpy().T, beta=1.0, c=half, trans=1, overwrite_c=1)
    alpha = torch.from_numpy(linalg.cho_solve((linalg.cholesky(half), False), y.numpy()))
    gradient = torch.zeros_like(x)
    for V, features in zip(blocks(), kept, strict=True):
        gradient += V.mT @ ((1 - torch.tanh(V @ x).square()) * (features.mT @ alpha))
    return float(gradient.norm() * x.norm())


def generalization(
    contexts: Tensor, labels: Tensor, X: Tensor, y: float, weight: Tensor, word: int, starts: int = 6
) -> dict[str, float]:
    """The losses of raf for both trainings, in the dtype of X: Cholesky of the kernel, and L-BFGS from random starts.

    A functional of phi(X^i(Delta)) needs, of each other row, only the moved score: the sums over the other words are
    those of X. Autograd goes through these; Delta is put back onto the ball by a smooth map.
    """
    d, scale = X.shape[1], 1 / math.sqrt(X.shape[1])
    W, radius = weight.to(X), math.sqrt(X.shape[1])

    def phi(A: Tensor) -> Tensor:
        return (torch.softmax(A @ W @ A.mT * scale, dim=-1) @ A).flatten(-2)

    features, own = phi(contexts), phi(X)
    factor = torch.linalg.cholesky((features @ features.mT).double())

    def solve(right: Tensor) -> Tensor:
        return torch.cholesky_solve(right.double()[:, None], factor)[:, 0].to(X)

    theta = features.mT @ solve(labels)
    rest = own - features.mT @ solve(features @ own)
    fine, again, missing = own / (own @ own), rest / (rest @ rest), y - own @ theta
    scores = X @ W @ X.mT * scale
    top = scores.amax(1)
    gains = torch.exp(scores - top[:, None])
    gains[:, word] = 0
    total, sums, keep = gains.sum(1), gains @ X, torch.arange(len(X)) != word
    asked, asking = X @ W * scale, W @ X.mT * scale  # n d, d n: scores that rows give the word, and that it gives

    def value(U: Tensor, shift: float, start: Tensor) -> Tensor:
        x = X[word] + start * (radius / start.norm().clamp_min(radius))
        gain = torch.exp(asked @ x - top)
        rows = ((U * sums).sum(1) + gain * (U @ x)) / (total + gain)
        own_weights = torch.softmax(torch.where(keep, x @ asking, x @ W @ x * scale), dim=-1)
        moved = (own_weights * torch.where(keep, X @ U[word], x @ U[word])).sum()
        return (torch.where(keep, rows, 0).sum() + moved + shift).square()

    losses = {}
    source = torch.Generator().manual_seed(0)
    problems = {"alignment": (fine, again, 1.0), "error": (theta + fine * missing, theta + again * missing, y)}
    for name, (one, other, shift) in problems.items():
        for training, u in (("fine-tuned", one), ("re-trained", other)):
            ends = []
            for _ in range(starts):
                start = torch.randn(d, generator=source, dtype=X.dtype).requires_grad_(True)
                search = torch.optim.LBFGS([start], max_iter=60, history_size=10, line_search_fn="strong_wolfe")

                def closure(u: Tensor = u, shift: float = shift, at: Tensor = start) -> Tensor:
                    at.grad = None
                    loss = value(u.reshape(X.shape), shift, at)
                    loss.backward()  # type: ignore[no-untyped-call]
                    return loss.detach()

                search.step(closure)  # type: ignore[no-untyped-call]
                ends.append(float(closure()))
            losses[f"{training} {name}"] = min(ends)
    return losses
