# The public names, package by package, in the order that data flows: this is the only list of them.
# isort: skip_file

# Errors: one base, three children
from .errors import (
    InputError as InputError,
    MissingExtra as MissingExtra,
    NumericalError as NumericalError,
    WordswayError as WordswayError,
)

# Contexts: n words by d dimensions
from .contexts import (
    gaussian_context as gaussian_context,
    gaussian_samples as gaussian_samples,
    load_contexts as load_contexts,
    normalize as normalize,
    perturb as perturb,
)

# Activations of random features and networks
from .activations import ACTIVATIONS as ACTIVATIONS, Activation as Activation

# Gaussian matrices, stored or drawn as they are used
from .gaussian import DenseGaussian as DenseGaussian, GaussianMatrix as GaussianMatrix, LazyGaussian as LazyGaussian

# Feature maps and their one-word responses
from .maps import (
    Attention as Attention,
    DeepRandomFeatures as DeepRandomFeatures,
    RandomAttention as RandomAttention,
    RandomFeatures as RandomFeatures,
    Response as Response,
    Rotary as Rotary,
    random_feature_response as random_feature_response,
    respond as respond,
)

# Word sensitivity: search, upper bound, profile, vocabulary
from .sensitivity import (
    Profile as Profile,
    Sensitivity as Sensitivity,
    VocabularySensitivity as VocabularySensitivity,
    assumptions as assumptions,
    response_sensitivity as response_sensitivity,
    sensitivity_profile as sensitivity_profile,
    theorem51 as theorem51,
    vocabulary_sensitivity as vocabulary_sensitivity,
    word_sensitivity as word_sensitivity,
)

# Generalization of fine-tuned and re-trained models
from .generalization import (
    Generalization as Generalization,
    Interpolator as Interpolator,
    PredictionGap as PredictionGap,
    StreamedFeatures as StreamedFeatures,
    one_word_generalization as one_word_generalization,
    prediction_gap as prediction_gap,
)

# Lipschitz constants of attention
from .smoothness import (
    AdversarialContext as AdversarialContext,
    Bounds as Bounds,
    DiscreteMeasure as DiscreteMeasure,
    LocalLipschitz as LocalLipschitz,
    MeanFieldLipschitz as MeanFieldLipschitz,
    adversarial_context as adversarial_context,
    lipschitz_bounds as lipschitz_bounds,
    local_lipschitz as local_lipschitz,
    local_lipschitz_many as local_lipschitz_many,
    mean_field as mean_field,
    mean_field_lipschitz as mean_field_lipschitz,
    wasserstein as wasserstein,
)

# Tangent kernels and the robustness of features
from .kernels import (
    Network as Network,
    feature_robustness as feature_robustness,
    ntk as ntk,
    smallest_eigenvalue as smallest_eigenvalue,
)

# Pre-trained transformers and real texts
from .models import (
    Model as Model,
    load as load,
    review_contexts as review_contexts,
    vocabulary_embeddings as vocabulary_embeddings,
)

# Experiments: trials, grids, claims, and their store
from .experiments import (
    Experiment as Experiment,
    RunConfig as RunConfig,
    Store as Store,
    audit as audit,
    run as run,
)

__all__: list[str]
__version__: str
