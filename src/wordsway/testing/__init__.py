"""Conformance suites: tests to inherit for your own matrices and maps."""

from wordsway.testing.gaussian import GaussianMatrixConformance
from wordsway.testing.maps import MapConformance

__all__ = ["GaussianMatrixConformance", "MapConformance"]
