"""Compare JATIC_ONNX models with modelmaite, which checkmaite runs them with."""

from pathlib import Path

import pytest

from tests.benchmarks.jatic import differences, is_too_large


@pytest.mark.slow
def test_jatic_models_score_as_in_modelmaite(tmp_path: Path) -> None:
    assert [difference for difference in differences(tmp_path) if is_too_large(difference)] == []
