"""``charioteer tune``."""

import json
import shutil
from pathlib import Path

import pytest

from app.cli.tune import tune

MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def test_best_candidate_is_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(MODELS / "classifier", tmp_path / "classifier")
    tune(folder, batches=(1, 2), threads=(1,), seconds=0.05)
    output = capsys.readouterr().out
    assert "best" in output
    assert "--write saves the best result to model-settings.json" in output
    before = sorted(path.name for path in folder.iterdir())
    tune(folder, batches=(1,), threads=(1,), seconds=0.05, write=True)
    assert "Written to" in capsys.readouterr().out
    assert sorted({*before, "model-settings.json"}) == sorted(path.name for path in folder.iterdir())
    assert "batching" not in json.loads((folder / "model-settings.json").read_text())
