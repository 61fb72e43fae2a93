"""How smooth attention is: Jacobians, local Lipschitz constants, bounds, adversarial contexts."""

from wordsway.smoothness.adversarial import AdversarialContext, adversarial_context
from wordsway.smoothness.bounds import Bound, Bounds, lipschitz_bounds
from wordsway.smoothness.jacobian import AttentionJacobian, AutogradJacobian, Jacobian, jacobian_of
from wordsway.smoothness.measure import LocalLipschitz, local_lipschitz, local_lipschitz_many

__all__ = [
    "AdversarialContext",
    "AttentionJacobian",
    "AutogradJacobian",
    "Bound",
    "Bounds",
    "Jacobian",
    "LocalLipschitz",
    "adversarial_context",
    "jacobian_of",
    "lipschitz_bounds",
    "local_lipschitz",
    "local_lipschitz_many",
]
