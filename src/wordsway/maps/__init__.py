"""Feature maps and their one-word responses."""

from wordsway.maps.attention import Attention, RandomAttention
from wordsway.maps.random_features import DeepRandomFeatures, RandomFeatures, random_feature_response
from wordsway.maps.relative import RelativeBias
from wordsway.maps.response import Ceiling, FeatureMap, PlainResponse, Response, SearchHints, respond
from wordsway.maps.rotary import Rotary
from wordsway.maps.scores import Score

__all__ = [
    "Attention",
    "Ceiling",
    "DeepRandomFeatures",
    "FeatureMap",
    "PlainResponse",
    "RandomAttention",
    "RandomFeatures",
    "RelativeBias",
    "Response",
    "Rotary",
    "Score",
    "SearchHints",
    "random_feature_response",
    "respond",
]
