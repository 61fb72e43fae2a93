"""Conformance suites: tests to inherit for one's own matrices and maps."""

from wordsway.testing.gaussian import GaussianMatrixConformance

__all__ = ["GaussianMatrixConformance"]
