"""Gaussian matrices that are known through their products: stored, or drawn lazily and never stored.

A matrix is an operator with a shape, a product, a transpose and, where it fits into memory, a dense form. Code outside
this package does not need to know which kind it has.
"""

from wordsway.gaussian.base import GaussianMatrix, NormBound
from wordsway.gaussian.dense import DenseGaussian
from wordsway.gaussian.lazy import LazyGaussian

__all__ = ["DenseGaussian", "GaussianMatrix", "LazyGaussian", "NormBound"]
