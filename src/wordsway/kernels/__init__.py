"""Tangent kernels and their smallest eigenvalues, and the robustness of random and NTK features."""

from wordsway.kernels.eigenvalues import SmallestEigenvalue, smallest_eigenvalue
from wordsway.kernels.flow import Descent, Flow, descend, gradient_flow
from wordsway.kernels.halves import train_first_weight, two_halves
from wordsway.kernels.network import Network
from wordsway.kernels.robustness import FeatureModel, Robustness, Terms, feature_robustness
from wordsway.kernels.sweep import Point, RobustnessSweep, robustness_sweep
from wordsway.kernels.tangent import Chain, ntk, ntk_chain

__all__ = [
    "Chain",
    "Descent",
    "FeatureModel",
    "Flow",
    "Network",
    "Point",
    "Robustness",
    "RobustnessSweep",
    "SmallestEigenvalue",
    "Terms",
    "descend",
    "feature_robustness",
    "gradient_flow",
    "ntk",
    "ntk_chain",
    "robustness_sweep",
    "smallest_eigenvalue",
    "train_first_weight",
    "two_halves",
]
