"""Word sensitivity: search over the ball, ceilings, profiles, vocabulary swaps."""

from wordsway.sensitivity.measure import (
    response_sensitivity,
    sensitivity_profile,
    vocabulary_sensitivity,
    word_sensitivity,
)
from wordsway.sensitivity.records import Cost, Profile, Sensitivity, VocabularySensitivity
from wordsway.sensitivity.search import Effort, Found, maximise

__all__ = [
    "Cost",
    "Effort",
    "Found",
    "Profile",
    "Sensitivity",
    "VocabularySensitivity",
    "maximise",
    "response_sensitivity",
    "sensitivity_profile",
    "vocabulary_sensitivity",
    "word_sensitivity",
]
