"""Word sensitivity: search over the ball, ceilings, profiles, vocabulary swaps, the theorems' assumptions and proof."""

from wordsway.sensitivity.assumptions import Assumption, Assumptions, assumptions
from wordsway.sensitivity.measure import (
    response_profile,
    response_sensitivity,
    sensitivity_profile,
    vocabulary_sensitivity,
    word_sensitivity,
)
from wordsway.sensitivity.records import Profile, Sensitivity, VocabularySensitivity
from wordsway.sensitivity.search import SearchBudget, SearchResult, maximise
from wordsway.sensitivity.theorem51 import Theorem51, theorem51

__all__ = [
    "Assumption",
    "Assumptions",
    "Profile",
    "SearchBudget",
    "SearchResult",
    "Sensitivity",
    "Theorem51",
    "VocabularySensitivity",
    "assumptions",
    "maximise",
    "response_profile",
    "response_sensitivity",
    "sensitivity_profile",
    "theorem51",
    "vocabulary_sensitivity",
    "word_sensitivity",
]
