"""Records of generalization: one line, JSON, a table, a picture and HTML."""

import pytest
from record_checks import check_record

from generalization.plain import scene
from wordsway import one_word_generalization, prediction_gap

GIVEN = scene("raf")
ARGUMENTS = (GIVEN.phi, GIVEN.contexts, GIVEN.labels, GIVEN.X, GIVEN.y)
COST = {"seconds", "peak_mb", "dtype", "device", "evaluations"}
KEYS = {
    *("training", "loss", "penalty", "gamma", "error", "bound", "floor", "constant", "before", "moved_before", "after"),
    *("alignment_fine_tuned", "alignment_retrained", "sensitivity", "status", "interpolates", "lambda_min"),
    *("loss_value", *COST),
}


def test_generalization() -> None:
    record = one_word_generalization(*ARGUMENTS)[0]
    check_record(record, KEYS, record.error)
    assert "Problem('fine-tuned', 'alignment', 0)" in repr(record)
    assert set(record.to_dict()) == KEYS


def test_prediction_gap() -> None:
    record = prediction_gap(*ARGUMENTS)
    check_record(record, {"gap", "ceiling", "lambda_min", "status", *COST}, record.value)
    plain = record.to_dict()
    assert (plain["gap"], plain["ceiling"], plain["lambda_min"]) == pytest.approx(
        (record.value, record.ceiling, record.lambda_min)
    )
