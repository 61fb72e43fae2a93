"""The product of a matrix with questions as one operation that torch can differentiate and batch."""

from typing import Any, Protocol

import torch
from torch import Tensor

from wordsway.gaussian.interface import check_finite, check_question


class Answering(Protocol):
    """What is needed of a matrix: its columns, its transpose, and answers to checked questions."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def T(self) -> "Answering": ...

    def answer(self, questions: Tensor) -> Tensor: ...


def multiply(matrix: Answering, questions: Tensor) -> Tensor:
    """Check the questions and return the answers; their gradient asks the transpose."""
    check_question(questions, matrix.shape[1], matrix.dtype)
    answers: Tensor = _Product.apply(questions, matrix)  # type: ignore[no-untyped-call]
    return answers


class _Product(torch.autograd.Function):
    """A linear operation whose adjoint is the transposed question. Entries are read in `forward` only."""

    @staticmethod
    def forward(questions: Tensor, matrix: Answering) -> Tensor:
        check_finite(questions, "questions")
        return matrix.answer(questions)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Answering], output: Tensor) -> None:
        ctx.matrix = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return multiply(ctx.matrix.T, gradients[0]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return multiply(ctx.matrix, tangents[0])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], questions: Tensor, matrix: Answering) -> tuple[Tensor, int]:
        batch = questions.movedim(in_dims[0], -1)  # cols [b] batch
        answers = multiply(matrix, batch.reshape(batch.shape[0], -1))  # rows (b batch)
        return answers.reshape(-1, *batch.shape[1:]), batch.ndim - 1
