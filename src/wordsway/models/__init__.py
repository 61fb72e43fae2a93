"""Pre-trained models and real texts: the offline encoder, its vocabulary, and film reviews as contexts.

This room is the only one that knows the files of models. It reads files; it never runs code that comes with them.
"""

from wordsway.models.reviews import embedding_dimension, review_contexts, vocabulary_embeddings

__all__ = ["embedding_dimension", "review_contexts", "vocabulary_embeddings"]
