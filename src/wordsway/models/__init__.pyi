# The public names, module by module.
# isort: skip_file

from .encoder import (
    embedding_dimension as embedding_dimension,
    review_contexts as review_contexts,
    vocabulary_embeddings as vocabulary_embeddings,
)
from .inputs import input_samples as input_samples
from .length import length_curve as length_curve
from .model import Model as Model
from .radius import norm_radius as norm_radius
from .transformer import load as load
