"""Pre-trained models and real texts: which word a model hangs on, layers of transformers, and reviews as contexts.

This room is the only one that knows the files of models. It reads files; it never runs code that comes with them.
"""

from wordsway.models.configuration import embedding_dimension
from wordsway.models.hearing import hear
from wordsway.models.images import image_samples
from wordsway.models.inputs import input_samples
from wordsway.models.model import Model
from wordsway.models.radius import norm_radius
from wordsway.models.reviews import review_contexts, vocabulary_embeddings
from wordsway.models.transformer import load

__all__ = [
    "Model",
    "embedding_dimension",
    "hear",
    "image_samples",
    "input_samples",
    "load",
    "norm_radius",
    "review_contexts",
    "vocabulary_embeddings",
]
