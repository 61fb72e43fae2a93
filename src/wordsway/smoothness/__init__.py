"""How smooth attention is: Jacobians, local Lipschitz constants, bounds, adversarial contexts, mean field."""

from wordsway.smoothness.adversarial import AdversarialContext, adversarial_context, adversarial_directions
from wordsway.smoothness.bounds import Bound, Bounds, lipschitz_bounds
from wordsway.smoothness.heads import Ellipsoid
from wordsway.smoothness.jacobian import AttentionJacobian, AutogradJacobian, Jacobian, jacobian_of
from wordsway.smoothness.local import LocalLipschitz, local_lipschitz, local_lipschitz_many
from wordsway.smoothness.mean_field_search import MeanFieldLipschitz, mean_field, mean_field_lipschitz
from wordsway.smoothness.neighbourhood import NeighbourhoodBound, neighbourhood_bound
from wordsway.smoothness.transport import DiscreteMeasure, Transport, wasserstein

__all__ = [
    "AdversarialContext",
    "AttentionJacobian",
    "AutogradJacobian",
    "Bound",
    "Bounds",
    "DiscreteMeasure",
    "Ellipsoid",
    "Jacobian",
    "LocalLipschitz",
    "MeanFieldLipschitz",
    "NeighbourhoodBound",
    "Transport",
    "adversarial_context",
    "adversarial_directions",
    "jacobian_of",
    "lipschitz_bounds",
    "local_lipschitz",
    "local_lipschitz_many",
    "mean_field",
    "mean_field_lipschitz",
    "neighbourhood_bound",
    "wasserstein",
]
