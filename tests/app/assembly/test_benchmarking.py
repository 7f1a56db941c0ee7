"""Tuning: candidates are measured, the best one is chosen, and other settings are kept."""

import json
from pathlib import Path

import pytest

from app.assembly.benchmarking import (
    Candidate,
    Measurement,
    all_candidates,
    best_measurement,
    measure_candidates,
    write_settings,
)
from app.assembly.discovery import model_at
from app.settings.model import SETTINGS_FILE, BatchingSettings, ModelError, OnnxRuntimeSettings, read_settings
from tests.support.images import encode_image, rectangle

MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def measurement(batch: int, *, rate: float, lone: float = 5.0) -> Measurement:
    return Measurement(candidate=Candidate(batch), rate=rate, p50=1, p99=2, single_latency=lone, cpu=1)


def test_candidates_cover_every_combination_simplest_first() -> None:
    assert all_candidates([4, 2], [2], 3.0) == [
        Candidate(1, 0, 1),
        Candidate(2, 3, 1),
        Candidate(4, 3, 1),
        Candidate(1, 0, 2),
        Candidate(2, 3, 2),
        Candidate(4, 3, 2),
    ]


def test_best_candidate_depends_on_the_goal() -> None:
    candidates = [measurement(1, rate=100, lone=5), measurement(4, rate=150, lone=6), measurement(2, rate=90, lone=4)]
    assert best_measurement(candidates, "throughput").candidate.batch == 4
    assert best_measurement(candidates, "latency").candidate.batch == 2


def test_simplest_candidate_wins_when_the_gain_is_small() -> None:
    assert best_measurement([measurement(1, rate=100), measurement(4, rate=104)], "throughput").candidate.batch == 1


@pytest.mark.parametrize("name", ["detector", "half_plus_two"])
def test_every_candidate_is_measured(name: str) -> None:
    (source,) = model_at(MODELS / name)
    candidates = all_candidates([2], [1], 1.0)
    rows = list(measure_candidates(source, candidates, encode_image(rectangle()), 2, 0.05))
    assert [row.candidate for row in rows] == candidates
    assert all(row.rate > 0 and 0 < row.p50 <= row.p99 and row.single_latency > 0 and row.cpu > 0 for row in rows)


def test_write_settings_keeps_other_settings(tmp_path: Path) -> None:
    existing = {"labels": ["a", "b"], "onnxruntime": {"instances": 2}, "parameters": {"score_threshold": 0.25}}
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(existing))
    write_settings(tmp_path, Candidate(8, 2.5, 2))
    settings = read_settings(tmp_path)
    assert settings.batching == BatchingSettings(max_size=8, max_delay_ms=2.5)
    assert settings.onnxruntime == OnnxRuntimeSettings(instances=2, threads=2)
    assert settings.labels == ("a", "b")
    assert settings.parameters == {"score_threshold": 0.25}
    assert [path.name for path in tmp_path.iterdir()] == [SETTINGS_FILE]


def test_default_candidate_removes_its_settings(tmp_path: Path) -> None:
    write_settings(tmp_path, Candidate(8, 2.5, 2))
    file = write_settings(tmp_path, Candidate())
    assert json.loads(file.read_text()) == {}


def test_unreadable_settings_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        write_settings(tmp_path, Candidate(2))
    assert (tmp_path / SETTINGS_FILE).read_text() == "{"
