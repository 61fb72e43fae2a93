"""How a revealed matrix answers: split the questions, draw what is new, remember."""

import torch
from torch import Tensor

from wordsway import memory
from wordsway.gaussian.draws import PURPOSE, draw_normal, empty
from wordsway.gaussian.ledger import Ledger
from wordsway.seeds import generator

_PANEL = 64  # questions treated at once: wide enough for fast products, narrow enough for a cheap factorisation
_PANEL_BYTES = 1 << 28  # bound on the working copy of a panel
_CHECKED_BYTES = 1 << 26  # blocks larger than this are checked against the free memory


class Oracle:
    """The state that all views of one revealed matrix share: two ledgers and a generator."""

    def __init__(self, rows: int, cols: int, scale: float, seed: int, dtype: torch.dtype) -> None:
        self.scale = scale
        self.dtype = dtype
        self.ledgers = (Ledger(cols, rows, dtype), Ledger(rows, cols, dtype))  # right questions, left questions
        self._eps = torch.finfo(dtype).eps
        self._source = generator(seed, PURPOSE)

    def ask(self, side: int, questions: Tensor, inputs: slice, outputs: slice) -> Tensor:
        """Answer G q (side 0) or G^T p (side 1) for the rows of `questions`.

        Parameters
        ----------
        side
            0 or 1.
        questions
            b x (length of `inputs`), finite; a full question is zero outside `inputs`.
        inputs, outputs
            The part of a full question that is given, and the part of a full answer that is wanted.

        Returns
        -------
        Tensor
            b x (length of `outputs`).
        """
        asked, other = self.ledgers[side], self.ledgers[1 - side]
        total, width = len(questions), outputs.stop - outputs.start
        if total * (asked.length + asked.answer_length) * self.dtype.itemsize > _CHECKED_BYTES:
            self.require(side, total, width, f"a block of {total} questions to a revealed matrix")
        answers = empty(total, width, self.dtype)
        start = 0
        while start < total:
            stop = min(total, start + self._panel_width(side))
            self._answer(asked, other, questions[start:stop], inputs, outputs, answers[start:stop])
            start = stop
        return answers

    def require(self, side: int, questions: int, width: int, what: str) -> None:
        """Refuse, before anything is allocated, questions whose memory, answers and working copies do not fit."""
        asked = self.ledgers[side]
        new = 0 if self.ledgers[1 - side].full else min(questions, asked.length - asked.count)
        panel = min(questions, self._panel_width(side))
        numbers = new * (asked.length + asked.answer_length) + questions * width + 3 * panel * asked.length
        memory.require(numbers * self.dtype.itemsize, what, "ask fewer questions or use a smaller size")

    def _panel_width(self, side: int) -> int:
        """Questions to treat at once: never more than there are unknown directions, while any is unknown."""
        asked, other = self.ledgers[side], self.ledgers[1 - side]
        fits = max(1, _PANEL_BYTES // (asked.length * self.dtype.itemsize))
        return min(_PANEL, fits, asked.length if asked.full or other.full else asked.length - asked.count)

    def _answer(
        self, asked: Ledger, other: Ledger, questions: Tensor, inputs: slice, outputs: slice, out: Tensor
    ) -> None:
        """Write the answers to one panel of questions to `out`."""
        single = len(questions) == 1 and not (asked.full or other.full)
        # A single new question is worked on where it will be kept.
        panel = asked.reserve(1)[0] if single else empty(len(questions), asked.length, self.dtype)  # w length
        peaks = _fill(panel, questions, inputs)  # w 1
        if other.full:  # the matrix is known from the other side: G q = Q_L (Y_L^T q)
            other.combine_questions(other.project_answers(panel) * peaks, outputs, out)
            return
        weights = asked.project(panel)  # w count
        if not asked.full:
            weights = torch.cat([weights, self._learn(asked, other, panel, weights)], dim=1)  # w count, which has grown
        asked.combine_answers(weights * peaks, outputs, out)

    def _learn(self, asked: Ledger, other: Ledger, panel: Tensor, weights: Tensor) -> Tensor:
        """Reveal what is new in a panel and return its weights on the new directions; the panel is overwritten.

        A question counts as known when no more than a few rounding errors of it are left: its answer then misses that
        fraction, as any answer does by rounding. The threshold must not be higher, because what is dropped is lost to
        the adjoint identity (a root of eps would cost half the digits); where it is too low, a rounding error is asked
        as a question of its own, which costs a draw but no accuracy.
        """
        floor = 16 * self._eps * (16 + asked.count) ** 0.5  # errors of a projection grow like the root of its terms
        floors = [floor * size for size in torch.linalg.vector_norm(panel, dim=1).tolist()]
        asked.add_questions(weights, panel, alpha=-1.0)
        found = [panel[:, :0]]
        while not asked.full:
            left = torch.linalg.vector_norm(panel, dim=1).tolist()
            rows = [row for row, size in enumerate(left) if size > floors[row]]
            fresh, news = _fresh_directions(asked, panel, rows, floors)  # k length, w k
            if not len(fresh):
                break
            self._reveal(asked, other, fresh)
            found.append(news)
            if len(panel) == 1:
                break
            # Questions that were set aside as dependent may have leaned on others set aside: look at them again.
            panel.addmm_(news, fresh, alpha=-1.0)
        return torch.cat(found, dim=1)

    def _reveal(self, asked: Ledger, other: Ledger, fresh: Tensor) -> None:
        """Draw the answers to orthonormal questions that are orthogonal to all earlier ones, and remember both."""
        questions, answers = asked.reserve(len(fresh))
        questions.copy_(fresh)
        for answer in answers:  # one at a time, so that a block draws what its columns would draw alone
            draw_normal(answer, self.scale, self._source)
        # Q (Y^T u) + (I - Q Q^T) z with two passes over Q.
        other.add_questions(other.project_answers(fresh) - other.project(answers), answers)
        asked.commit(len(fresh))


def _fill(panel: Tensor, questions: Tensor, inputs: slice) -> Tensor:
    """Write questions, padded with zeros and scaled to a largest entry of 1, into a panel; return the scales.

    The scaling keeps squares from overflowing or vanishing.
    """
    panel[:, : inputs.start] = 0
    panel[:, inputs.stop :] = 0
    peaks = torch.maximum(questions.amax(1, keepdim=True), -questions.amin(1, keepdim=True))  # w 1
    torch.div(questions, torch.where(peaks == 0, 1, peaks), out=panel[:, inputs])
    return peaks


def _orthonormal(vectors: Tensor) -> tuple[Tensor, list[float]]:
    """Orthonormalise rows in order; also return how much of each was new. A single row is overwritten."""
    if len(vectors) == 1:
        size = float(torch.linalg.vector_norm(vectors))
        return vectors.div_(size or 1.0), [size]
    basis, weights = torch.linalg.qr(vectors.mT)  # length w, w w
    news = weights.diagonal()
    basis *= torch.where(news < 0, -1, 1)  # as if one row after another, so that a block equals its columns
    return basis.mT, news.abs().tolist()  # LAPACK's columns are contiguous, and so are these rows


def _fresh_directions(asked: Ledger, panel: Tensor, rows: list[int], floors: list[float]) -> tuple[Tensor, Tensor]:
    """Orthonormal directions for the given rows of a panel that was projected once, and all its weights on them.

    They are projected twice, because division by a small remainder magnifies what the first projection missed. Rows of
    which less than their floor is new to the earlier rows are set aside.
    """
    while rows:
        basis, first = _orthonormal(panel if len(rows) == len(panel) else panel[rows])
        asked.add_questions(asked.project(basis), basis, alpha=-1.0)
        basis, second = _orthonormal(basis)
        sizes = [a * b for a, b in zip(first, second, strict=True)]
        new = [row for row, size in zip(rows, sizes, strict=True) if size > floors[row]]
        if len(new) == len(rows):
            return basis, panel.new_tensor([sizes]) if len(panel) == 1 else panel @ basis.mT
        rows = new
    return panel[:0], panel[:, :0]
