"""Word sensitivity: search over the ball, ceilings, profiles, vocabulary swaps."""

from wordsway.sensitivity.measure import (
    response_profile,
    response_sensitivity,
    sensitivity_profile,
    vocabulary_sensitivity,
    word_sensitivity,
)
from wordsway.sensitivity.records import Profile, Sensitivity, VocabularySensitivity
from wordsway.sensitivity.search import SearchBudget, SearchResult, maximise

__all__ = [
    "Profile",
    "SearchBudget",
    "SearchResult",
    "Sensitivity",
    "VocabularySensitivity",
    "maximise",
    "response_profile",
    "response_sensitivity",
    "sensitivity_profile",
    "vocabulary_sensitivity",
    "word_sensitivity",
]
