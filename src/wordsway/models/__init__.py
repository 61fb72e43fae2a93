"""Pre-trained models and real texts: encoders at layer 0, their vocabularies, and film reviews as contexts.

This room is the only one that knows the files of models. It reads files; it never runs code that comes with them.
"""

from wordsway.models.configuration import embedding_dimension
from wordsway.models.reviews import review_contexts, vocabulary_embeddings

__all__ = ["embedding_dimension", "review_contexts", "vocabulary_embeddings"]
