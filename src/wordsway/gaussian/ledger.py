"""The memory of one side of a revealed matrix: orthonormal questions and their answers, kept in chunks."""

import torch
from torch import Tensor

from wordsway.gaussian.draws import empty

_CHUNK_BYTES = 1 << 28  # bound on the growth of one chunk
_FIRST = 8  # vectors in the first chunk


class Ledger:
    """Orthonormal questions (count x length) with their answers (count x answer length), appended and never moved.

    A chunk is allocated ahead and filled in place, so that an append copies only the new vectors; chunks grow with what
    is already kept up to a bound in bytes, so that products run over few large pieces and little is allocated in vain
    (pages of a chunk that were never written take no memory on the usual systems).
    """

    def __init__(self, length: int, answer_length: int, dtype: torch.dtype) -> None:
        self.length = length
        self.answer_length = answer_length
        self.dtype = dtype
        self.count = 0
        self.pieces: list[tuple[Tensor, Tensor]] = []  # what is kept, as views of the filled rows of the chunks
        self._chunks: list[tuple[Tensor, Tensor]] = []
        self._used = 0  # rows of the last chunk that are kept

    @property
    def full(self) -> bool:
        """Whether the questions span the whole space, so that the matrix is known."""
        return self.count == self.length

    def project(self, vectors: Tensor) -> Tensor:
        """Inner products of the rows of `vectors` with the questions."""
        return _products(vectors, [questions for questions, _ in self.pieces])  # w count

    def project_answers(self, vectors: Tensor) -> Tensor:
        """Inner products of the rows of `vectors` with the answers."""
        return _products(vectors, [answers for _, answers in self.pieces])  # w count

    def add_questions(self, weights: Tensor, out: Tensor, alpha: float = 1.0) -> None:
        """Add alpha times the combinations of questions that the rows of `weights` describe to `out`."""
        start = 0
        for questions, _ in self.pieces:
            stop = start + questions.shape[0]
            out.addmm_(weights[:, start:stop], questions, alpha=alpha)
            start = stop

    def combine_questions(self, weights: Tensor, keep: slice, out: Tensor) -> None:
        """Write combinations of questions, of each the part `keep`."""
        _combine(weights, [questions[:, keep] for questions, _ in self.pieces], out)

    def combine_answers(self, weights: Tensor, keep: slice, out: Tensor) -> None:
        """Write combinations of answers, of each the part `keep`."""
        _combine(weights, [answers[:, keep] for _, answers in self.pieces], out)

    def reserve(self, count: int) -> tuple[Tensor, Tensor]:
        """Hand out empty rows for `count` more questions and answers; `commit` makes them part of the memory."""
        if not self._chunks or self._chunks[-1][0].shape[0] - self._used < count:
            bytes_each = (self.length + self.answer_length) * self.dtype.itemsize
            growth = min(max(_FIRST, self.count), _CHUNK_BYTES // bytes_each, self.length - self.count)
            capacity = max(count, growth)
            questions = empty(capacity, self.length, self.dtype)
            answers = empty(capacity, self.answer_length, self.dtype)
            self._chunks.append((questions, answers))
            self._used = 0
        questions, answers = self._chunks[-1]
        return questions[self._used : self._used + count], answers[self._used : self._used + count]

    def commit(self, count: int) -> None:
        """Make the first `count` of the rows last reserved part of the memory."""
        if self._used:
            self.pieces.pop()
        self._used += count
        self.count += count
        questions, answers = self._chunks[-1]
        self.pieces.append((questions[: self._used], answers[: self._used]))


def _products(vectors: Tensor, chunks: list[Tensor]) -> Tensor:
    products = [vectors @ chunk.mT for chunk in chunks]
    return torch.cat(products, dim=1) if products else vectors.new_zeros(len(vectors), 0)  # w count


def _combine(weights: Tensor, chunks: list[Tensor], out: Tensor) -> None:
    if not chunks:
        out.zero_()
    start = 0
    for chunk in chunks:
        # The first product overwrites (a factor of 0 ignores what was there), the others add.
        stop = start + chunk.shape[0]
        out.addmm_(weights[:, start:stop], chunk, beta=1.0 if start else 0.0)
        start = stop
