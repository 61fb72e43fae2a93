"""What one changed word does to generalization: interpolation, fine-tuning, re-training, alignment, losses."""

from wordsway.generalization.interpolator import Features, Interpolator, StreamedFeatures, features_of
from wordsway.generalization.losses import LOSSES, TRAININGS, Losses, Problem
from wordsway.generalization.measure import Simulation, one_word_generalization, prediction_gap
from wordsway.generalization.records import Generalization, PredictionGap

__all__ = [
    "LOSSES",
    "TRAININGS",
    "Features",
    "Generalization",
    "Interpolator",
    "Losses",
    "PredictionGap",
    "Problem",
    "Simulation",
    "StreamedFeatures",
    "features_of",
    "one_word_generalization",
    "prediction_gap",
]
