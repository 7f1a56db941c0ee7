"""Compare JATIC_ONNX models with modelmaite, which checkmaite runs them with, and check their values with MAITE."""

from pathlib import Path

import pytest

from tests.benchmarks.jatic import differences, is_too_large
from tests.support.models.jatic_models import write_classifier, write_detector
from tests.support.servers.client_environments import run_checks


@pytest.mark.verifies("scores as in modelmaite", "jatic")
def test_jatic_models_score_as_in_modelmaite(tmp_path: Path) -> None:
    assert [difference for difference in differences(tmp_path, "modelmaite") if is_too_large(difference)] == []


def test_values_of_jatic_models_pass_spotcheck_of_maite(tmp_path: Path) -> None:
    write_classifier(tmp_path / "image_classification")
    write_detector(tmp_path / "object_detection")
    run_checks("maite", "with_maite", str(tmp_path))
