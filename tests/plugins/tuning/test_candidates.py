"""Which settings are measured, in turns, and how the best ones are written."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.assembly.discovery import model_at
from app.core.settings.model import SETTINGS_FILE, BatchingSettings, ModelError, ModelSource, read_settings
from app.plugins.tuning.benchmarking import Measurement, best_measurement, measure_candidates
from app.plugins.tuning.candidates import CURRENT, Candidate, candidates_for, with_candidate, write_settings
from tests.support.data.images import encode_image, rectangle

MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def source_in(folder: Path, root: Path | None = None) -> ModelSource:
    settings = read_settings(folder if (folder / SETTINGS_FILE).is_file() or root is None else root)
    return ModelSource(name="m", version="1", folder=folder, root=root, settings=settings)


def test_only_graphs_have_threads_and_runtimes() -> None:
    assert candidates_for(is_graph=True, cores=4)[0] is CURRENT
    assert any("cores" in candidate.name for candidate in candidates_for(is_graph=True, cores=4))
    assert not any("cores" in candidate.name for candidate in candidates_for(is_graph=True, cores=1))
    assert {name for candidate in candidates_for(is_graph=False, cores=4) for name in candidate.changes} == {"batching"}


@pytest.mark.parametrize("candidate", candidates_for(is_graph=True, cores=4), ids=lambda candidate: candidate.name)
def test_written_settings_are_those_that_were_measured_and_keep_the_others(
    tmp_path: Path, candidate: Candidate
) -> None:
    existing = {
        "labels": ["a", "b"],
        "batching": {"max_size": 4},
        "onnxruntime": {"instances": 2, "threads": 3},
        "preprocessing": {"scale": 1.0, "reduced_decode": True},
    }
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(existing))
    source = source_in(tmp_path)
    write_settings(source, candidate)
    settings = read_settings(tmp_path)
    assert settings == with_candidate(source, candidate).settings
    assert (settings.labels, settings.onnxruntime.instances) == (("a", "b"), 2)
    assert settings.preprocessing == source.settings.preprocessing
    expected = {"as they are": 4}.get(candidate.name, 8 if "batches of 8" in candidate.name else 1)
    assert settings.batching.max_size == expected
    assert [path.name for path in tmp_path.iterdir()] == [SETTINGS_FILE]


def test_removed_settings_are_not_written(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"runtime": "openvino", "openvino": {"streams": 3}, "batching": {}}')
    plain = next(candidate for candidate in candidates_for(is_graph=True, cores=2) if candidate.name == "onnxruntime")
    file = write_settings(source_in(tmp_path), plain)
    assert json.loads(file.read_text()) == {"openvino": {"streams": 3}}


def test_settings_for_all_versions_are_kept_in_the_file_of_a_version(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"labels": ["a"]}')
    (tmp_path / "1").mkdir()
    write_settings(source_in(tmp_path / "1", tmp_path), Candidate("batches", {"batching": {"max_size": 2}}))
    settings = read_settings(tmp_path / "1")
    assert (settings.labels, settings.batching) == (("a",), BatchingSettings(max_size=2))


def test_unreadable_settings_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text("{")
    with pytest.raises(ModelError, match="is not valid JSON"):
        write_settings(ModelSource(name="m", version="1", folder=tmp_path), CURRENT)
    assert (tmp_path / SETTINGS_FILE).read_text() == "{"


def with_rates(name: str, *rates: float) -> Measurement:
    rate = sorted(rates)[len(rates) // 2]
    return Measurement(Candidate(name, {}), rate, p50=1, p99=2, single_latency=5, cpu=1, rates=rates)


@pytest.mark.parametrize(
    ("second", "expected"),
    [((120, 60, 120), "second"), ((120, 45, 120), "first"), ((104, 52, 104), "first")],
    ids=["better", "once slower", "small gain"],
)
def test_candidate_must_be_better_than_a_simpler_one_in_every_round(second: Sequence[float], expected: str) -> None:
    measured = [with_rates("first", 100, 50, 100), with_rates("second", *second)]
    assert best_measurement(measured).candidate.name == expected


@pytest.mark.parametrize("name", ["classifier", "half_plus_two", "greeter"])
def test_every_candidate_is_measured(name: str) -> None:
    (source,) = model_at(MODELS / name)
    candidates = [CURRENT, Candidate("batches", {"batching": {"max_size": 2, "max_delay_ms": 1.0}})]
    pairs = [(candidate, with_candidate(source, candidate)) for candidate in candidates]
    rows = measure_candidates(pairs, [encode_image(rectangle())], 2, 0.05, rounds=2)
    assert [row.candidate for row in rows] == candidates
    assert all(row.rate > 0 and 0 < row.p50 <= row.p99 and row.single_latency > 0 and row.cpu > 0 for row in rows)
    assert [len(row.rates) for row in rows] == [2, 2]
