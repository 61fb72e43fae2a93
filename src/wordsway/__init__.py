"""wordsway: how far can one word move a model?

The public names, room by room; each is loaded when it is first used, so that importing the package is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wordsway.activations import ACTIVATIONS, Activation
    from wordsway.contexts import gaussian_context, gaussian_samples, load_contexts, normalize, perturb
    from wordsway.errors import InputError, MissingExtra, NumericalError, WordswayError
    from wordsway.experiments import Experiment, RunConfig, Store, run
    from wordsway.gaussian import DenseGaussian, GaussianMatrix, LazyGaussian
    from wordsway.generalization import (
        Generalization,
        Interpolator,
        PredictionGap,
        StreamedFeatures,
        one_word_generalization,
        prediction_gap,
    )
    from wordsway.kernels import (
        Network,
        feature_robustness,
        ntk,
        smallest_eigenvalue,
    )
    from wordsway.maps import (
        Attention,
        DeepRandomFeatures,
        RandomAttention,
        RandomFeatures,
        Response,
        Rotary,
        random_feature_response,
        respond,
    )
    from wordsway.models import Model, load, review_contexts, vocabulary_embeddings
    from wordsway.sensitivity import (
        Profile,
        Sensitivity,
        VocabularySensitivity,
        response_sensitivity,
        sensitivity_profile,
        vocabulary_sensitivity,
        word_sensitivity,
    )
    from wordsway.smoothness import (
        AdversarialContext,
        Bounds,
        DiscreteMeasure,
        LocalLipschitz,
        MeanFieldLipschitz,
        adversarial_context,
        lipschitz_bounds,
        local_lipschitz,
        local_lipschitz_many,
        mean_field,
        mean_field_lipschitz,
        wasserstein,
    )

__version__ = "0.1.0"

_ROOMS = {
    "errors": ("InputError", "MissingExtra", "NumericalError", "WordswayError"),
    "contexts": ("gaussian_context", "gaussian_samples", "load_contexts", "normalize", "perturb"),
    "activations": ("ACTIVATIONS", "Activation"),
    "gaussian": ("DenseGaussian", "GaussianMatrix", "LazyGaussian"),
    "maps": (
        "Attention",
        "DeepRandomFeatures",
        "RandomAttention",
        "RandomFeatures",
        "Response",
        "Rotary",
        "random_feature_response",
        "respond",
    ),
    "sensitivity": (
        "Profile",
        "Sensitivity",
        "VocabularySensitivity",
        "response_sensitivity",
        "sensitivity_profile",
        "vocabulary_sensitivity",
        "word_sensitivity",
    ),
    "generalization": (
        "Generalization",
        "Interpolator",
        "PredictionGap",
        "StreamedFeatures",
        "one_word_generalization",
        "prediction_gap",
    ),
    "smoothness": (
        "AdversarialContext",
        "Bounds",
        "DiscreteMeasure",
        "LocalLipschitz",
        "MeanFieldLipschitz",
        "adversarial_context",
        "lipschitz_bounds",
        "local_lipschitz",
        "local_lipschitz_many",
        "mean_field",
        "mean_field_lipschitz",
        "wasserstein",
    ),
    "kernels": (
        "Network",
        "feature_robustness",
        "ntk",
        "smallest_eigenvalue",
    ),
    "models": ("Model", "load", "review_contexts", "vocabulary_embeddings"),
    "experiments": ("Experiment", "RunConfig", "Store", "run"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "AdversarialContext",
    "Attention",
    "Bounds",
    "DeepRandomFeatures",
    "DenseGaussian",
    "DiscreteMeasure",
    "Experiment",
    "GaussianMatrix",
    "Generalization",
    "InputError",
    "Interpolator",
    "LazyGaussian",
    "LocalLipschitz",
    "MeanFieldLipschitz",
    "MissingExtra",
    "Model",
    "Network",
    "NumericalError",
    "PredictionGap",
    "Profile",
    "RandomAttention",
    "RandomFeatures",
    "Response",
    "Rotary",
    "RunConfig",
    "Sensitivity",
    "Store",
    "StreamedFeatures",
    "VocabularySensitivity",
    "WordswayError",
    "adversarial_context",
    "feature_robustness",
    "gaussian_context",
    "gaussian_samples",
    "lipschitz_bounds",
    "load",
    "load_contexts",
    "local_lipschitz",
    "local_lipschitz_many",
    "mean_field",
    "mean_field_lipschitz",
    "normalize",
    "ntk",
    "one_word_generalization",
    "perturb",
    "prediction_gap",
    "random_feature_response",
    "respond",
    "response_sensitivity",
    "review_contexts",
    "run",
    "sensitivity_profile",
    "smallest_eigenvalue",
    "vocabulary_embeddings",
    "vocabulary_sensitivity",
    "wasserstein",
    "word_sensitivity",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'wordsway' has no attribute {name!r}")
    value = getattr(import_module(f"wordsway.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
