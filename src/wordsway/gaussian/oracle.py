"""How a revealed matrix answers: split the questions, draw what is new, remember."""

import torch
from torch import Tensor

from wordsway import memory
from wordsway.gaussian.draws import draw_normal, own_generator
from wordsway.gaussian.ledger import Ledger

_PANEL = 64  # questions treated at once: wide enough for fast products, narrow enough for a cheap factorisation
_PANEL_BYTES = 1 << 28  # bound on the working copy of a panel
_CHECKED_BYTES = 1 << 26  # blocks larger than this are checked against the free memory


class Oracle:
    """The state that all views of one revealed matrix share: two ledgers and a generator."""

    def __init__(self, rows: int, cols: int, scale: float, seed: int, dtype: torch.dtype) -> None:
        self.scale = scale
        self.dtype = dtype
        self.ledgers = (Ledger(cols, rows, dtype), Ledger(rows, cols, dtype))  # right questions, left questions
        self._generator = own_generator(seed)

    def ask(self, side: int, questions: Tensor, inputs: slice, outputs: slice) -> Tensor:
        """Answer G q (side 0) or G^T p (side 1) for the rows of `questions`.

        Parameters
        ----------
        side
            0 or 1.
        questions
            b x (length of `inputs`), finite; zero outside `inputs`.
        inputs, outputs
            The part of a full question that is given, and the part of a full answer that is wanted.

        Returns
        -------
        Tensor
            b x (length of `outputs`).
        """
        asked, other = self.ledgers[side], self.ledgers[1 - side]
        total = len(questions)
        width = outputs.stop - outputs.start
        if total * (asked.length + asked.answer_length) * self.dtype.itemsize > _CHECKED_BYTES:
            self.require(side, total, width, f"a block of {total} questions to a revealed matrix")
        answers = torch.zeros(total, width, dtype=self.dtype)
        start = 0
        while start < total:
            stop = min(total, start + self._panel_width(asked, other))
            panel = torch.zeros(stop - start, asked.length, dtype=self.dtype)
            panel[:, inputs] = questions[start:stop]
            # Largest entries become 1, so that squares neither overflow nor vanish.
            peaks = torch.linalg.vector_norm(panel, float("inf"), dim=1, keepdim=True)  # w 1
            panel /= torch.where(peaks == 0, 1, peaks)
            self._answer(asked, other, panel, answers[start:stop], outputs)
            answers[start:stop] *= peaks
            start = stop
        return answers

    def require(self, side: int, questions: int, width: int, what: str) -> None:
        """Refuse, before anything is allocated, questions whose memory, answers and working copies do not fit."""
        asked = self.ledgers[side]
        new = 0 if self.ledgers[1 - side].full else min(questions, asked.length - asked.count)
        panel = min(questions, self._panel_width(asked, self.ledgers[1 - side]))
        numbers = new * (asked.length + asked.answer_length) + questions * width + 4 * panel * asked.length
        memory.require(numbers * self.dtype.itemsize, what, "ask fewer questions or use a smaller size")

    def _panel_width(self, asked: Ledger, other: Ledger) -> int:
        """Questions to treat at once: never more than there are unknown directions left, while any is unknown."""
        fits = max(1, _PANEL_BYTES // (asked.length * self.dtype.itemsize))
        unknown = asked.length if asked.full or other.full else asked.length - asked.count
        return min(_PANEL, fits, unknown)

    def _answer(self, asked: Ledger, other: Ledger, panel: Tensor, out: Tensor, outputs: slice) -> None:
        """Add the answers to a panel of scaled questions to `out`; the panel is overwritten."""
        if other.full:  # the matrix is known from the other side: G q = Q_L (Y_L^T q)
            other.add_questions(other.project_answers(panel), out, keep=outputs)
            return
        known = asked.project(panel)  # w count
        if not asked.full:
            sizes = torch.linalg.vector_norm(panel, dim=1)  # w
            asked.add_questions(known, panel, alpha=-1.0)
            fresh = self._fresh_directions(asked, panel, sizes)  # k length
            if len(fresh):
                self._reveal(asked, other, fresh)
                known = torch.cat([known, panel @ fresh.mT], dim=1)
        asked.add_answers(known, out, keep=outputs)

    def _reveal(self, asked: Ledger, other: Ledger, fresh: Tensor) -> None:
        """Draw the answers to orthonormal questions that are orthogonal to all earlier ones, and remember both."""
        questions, answers = asked.reserve(len(fresh))
        questions.copy_(fresh)
        for answer in answers:  # one at a time, so that a block draws what its columns would draw alone
            draw_normal(answer, self.scale, self._generator)
        # Q (Y^T u) + (I - Q Q^T) z with two passes over Q.
        other.add_questions(other.project_answers(fresh) - other.project(answers), answers)
        asked.commit(len(fresh))

    def _fresh_directions(self, asked: Ledger, left: Tensor, sizes: Tensor) -> Tensor:
        """Orthonormal rows that, with the questions asked, span a panel of questions.

        `left` is what remains of the questions after one projection and `sizes` their norms. A question counts as known
        when less than a few rounding errors of it remain: the answer then misses that fraction, as any answer does by
        rounding. The threshold must not be higher, because what is dropped is lost to the adjoint identity (a root of
        eps would cost half the digits); if it is too low, a rounding error is asked as a question of its own, which
        costs a draw but no accuracy.
        """
        eps = torch.finfo(self.dtype).eps
        floor = 16 * eps * (16 + asked.count) ** 0.5 * sizes  # errors of a projection grow like the root of its terms
        alive = torch.arange(len(left))
        while len(alive):
            basis, weights = _orthonormal(left if len(alive) == len(left) else left[alive])
            lowest = floor[alive]
            if bool((weights > lowest).all()):
                basis, factors = self._purify(asked, basis)
                weights = weights * factors
                if bool((weights > lowest).all()):
                    return basis
            alive = alive[weights > lowest]
        return left[:0]

    def _purify(self, asked: Ledger, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Project an orthonormal basis once more, until nothing of the earlier questions is left in it.

        Division by small remainders magnifies what the first projection missed. A second one is enough unless it
        removes much itself; then its result was mostly rounding and is cleaned again.
        """
        eps = torch.finfo(self.dtype).eps
        factors = torch.ones(len(basis), dtype=self.dtype)
        while True:
            asked.add_questions(asked.project(basis), basis, alpha=-1.0)
            basis, again = _orthonormal(basis)
            factors = factors * again
            if bool((again > 0.5).all()) or bool((factors < eps).any()):  # the caller drops the latter
                return basis, factors


def _orthonormal(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormalise rows in order; also return how much of each row was new. Overwrites nothing."""
    if len(vectors) == 1:
        size = torch.linalg.vector_norm(vectors, dim=1)
        return vectors / torch.where(size == 0, 1, size), size
    basis, weights = torch.linalg.qr(vectors.mT)  # length w, w w
    news = weights.diagonal()
    return (basis * torch.where(news < 0, -1, 1)).mT.contiguous(), news.abs()
