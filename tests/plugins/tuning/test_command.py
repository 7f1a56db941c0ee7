"""``charioteer tune``."""

import io
import json
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.plugins.tuning.benchmarking import Measurement, measure_candidates
from app.plugins.tuning.command import tune
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"


def run(path: Path, **options: Any) -> str:
    """Run the command, and return its output."""
    with redirect_stdout(io.StringIO()) as output:
        tune(path, seconds=0.02, **options)
    return output.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of a model of texts, which OpenVINO does not run."""
    copy = shutil.copytree(MODELS / "greeter", tmp_path / "greeter")
    (copy / "model-settings.json").write_text('{"max_waiting": 9}')
    return copy


@pytest.fixture
def fastest(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Measure, then set the rates, which depend on the machine: the settings with a name in the list are fastest."""
    names: list[str] = []

    def measure(*arguments: Any) -> list[Measurement]:
        rated = [(row, 1.0 + (row.candidate.name in names)) for row in measure_candidates(*arguments)]
        return [msgspec.structs.replace(row, rate=rate, rates=(rate,)) for row, rate in rated]

    monkeypatch.setattr("app.plugins.tuning.benchmarking.measure_candidates", measure)
    return names


def test_unchanged_settings_are_reported_and_not_written(folder: Path, fastest: list[str]) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    output = run(folder, write=True)
    assert "Nothing to change" in output
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_best_settings_are_written_when_asked(folder: Path, fastest: list[str]) -> None:
    fastest.append("onnxruntime, batches of 8")
    assert "--write saves the best settings to model-settings.json" in run(folder)
    assert json.loads((folder / "model-settings.json").read_text()) == {"max_waiting": 9}
    assert "Written to" in run(folder, write=True)
    expected = {"max_waiting": 9, "batching": {"max_size": 8, "max_delay_ms": 2.0}}
    assert json.loads((folder / "model-settings.json").read_text()) == expected


def test_settings_that_the_model_cannot_have_are_named(folder: Path) -> None:
    assert "openvino was not measured: " in run(folder)
