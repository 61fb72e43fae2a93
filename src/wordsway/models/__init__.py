"""Pre-trained transformers, and real texts as they embed them.

This is the only package that knows the files of models and the library transformers. It reads files; it never runs code
that comes with them.
"""

from wordsway.models.encoder import embedding_dimension, review_contexts, vocabulary_embeddings
from wordsway.models.inputs import input_samples
from wordsway.models.length import length_curve
from wordsway.models.model import Model
from wordsway.models.radius import norm_radius
from wordsway.models.transformer import load

__all__ = [
    "Model",
    "embedding_dimension",
    "input_samples",
    "length_curve",
    "load",
    "norm_radius",
    "review_contexts",
    "vocabulary_embeddings",
]
