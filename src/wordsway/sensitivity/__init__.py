"""Word sensitivity: search over the ball, ceilings, profiles, vocabulary swaps."""

from wordsway.sensitivity.measure import (
    response_sensitivity,
    sensitivity_profile,
    vocabulary_sensitivity,
    word_sensitivity,
)
from wordsway.sensitivity.records import Profile, Sensitivity, VocabularySensitivity
from wordsway.sensitivity.search import Found, SearchBudget, maximise

__all__ = [
    "Found",
    "Profile",
    "SearchBudget",
    "Sensitivity",
    "VocabularySensitivity",
    "maximise",
    "response_sensitivity",
    "sensitivity_profile",
    "vocabulary_sensitivity",
    "word_sensitivity",
]
