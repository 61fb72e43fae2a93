"""Gaussian matrices asked by products: stored, or revealed as they are asked and never stored.

A matrix here is an operator with a shape, a product, a transpose and, where it fits, a dense form. Nobody outside this
room needs to know which of the two kinds it holds.
"""

from wordsway.gaussian.dense import DenseGaussian
from wordsway.gaussian.interface import GaussianMatrix, NormBound
from wordsway.gaussian.revealed import LazyGaussian

__all__ = ["DenseGaussian", "GaussianMatrix", "LazyGaussian", "NormBound"]
