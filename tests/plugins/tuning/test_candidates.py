"""Which set-ups are compared, how they are measured in turns, and how the best one is written."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from app.core.assembly.discovery import model_at
from app.core.settings.model import (
    SETTINGS_FILE,
    BatchingSettings,
    ModelError,
    ModelSource,
    OnnxRuntimeSettings,
    PreprocessingSettings,
    read_settings,
)
from app.plugins.openvino.settings import OpenVinoSettings
from app.plugins.tuning.benchmarking import Measurement, best_measurement, measure_candidates
from app.plugins.tuning.candidates import (
    Candidate,
    all_candidates,
    current_candidate,
    variants,
    with_candidate,
    write_settings,
)
from tests.support.data.images import encode_image, rectangle

FULL = Candidate(8, 2.5, 2, "openvino", "bf16", reduced_decode=True)
RUNTIMES, PRECISIONS, DECODES = ("onnxruntime", "openvino"), ("fp32", "bf16", "int8"), ("full", "reduced")


def source_in(folder: Path, root: Path | None = None) -> ModelSource:
    settings = read_settings(folder if (folder / SETTINGS_FILE).is_file() or root is None else root)
    return ModelSource(name="m", version="1", folder=folder, root=root, settings=settings)


def test_candidates_cover_every_combination_simplest_first() -> None:
    expected = [Candidate(1, 0, 1), Candidate(2, 3, 1), Candidate(1, 0, 2), Candidate(2, 3, 2)]
    assert all_candidates([2], [2], 3.0) == expected


def test_variants_begin_with_the_reference_and_have_no_bf16_without_openvino() -> None:
    found = variants(Candidate(runtime="onnxruntime"), RUNTIMES, PRECISIONS, DECODES, ("own", "opencv"))
    full = [Candidate(runtime=runtime, precision=precision) for precision in PRECISIONS for runtime in RUNTIMES]
    full.remove(Candidate(runtime="onnxruntime", precision="bf16"))
    own = full + [msgspec.structs.replace(item, reduced_decode=True) for item in full]
    assert found == own + [msgspec.structs.replace(item, opencv_resize=True) for item in own]


def test_opencv_resize_is_written_and_a_declared_filter_is_kept(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"preprocessing": {"antialias": true, "interpolation": "bicubic"}}')
    write_settings(source_in(tmp_path), Candidate(runtime="onnxruntime"), 2)
    assert read_settings(tmp_path).preprocessing.antialias is True
    write_settings(source_in(tmp_path), Candidate(runtime="onnxruntime", opencv_resize=True), 2)
    expected = PreprocessingSettings(antialias=False, interpolation="bicubic")
    assert read_settings(tmp_path).preprocessing == expected


def test_quantised_model_stays_int8_and_other_models_keep_their_runtime() -> None:
    quantised = variants(Candidate(runtime="openvino", precision="int8"), RUNTIMES, PRECISIONS, ("full",))
    assert {item.precision for item in quantised} == {"int8"}
    assert variants(Candidate(), RUNTIMES, PRECISIONS, DECODES) == [Candidate()]


def test_written_settings_are_those_that_were_measured_and_keep_the_others(tmp_path: Path) -> None:
    existing = {"labels": ["a", "b"], "onnxruntime": {"instances": 2}, "preprocessing": {"scale": 1.0}}
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(existing))
    source = source_in(tmp_path)
    candidate = FULL
    write_settings(source, candidate, 4)
    settings = read_settings(tmp_path)
    assert (settings.runtime, settings.precision) == ("openvino", "bf16")
    assert settings.batching == BatchingSettings(max_size=8, max_delay_ms=2.5)
    assert settings.of(OpenVinoSettings) == OpenVinoSettings(threads=2, streams=2)
    assert settings.onnxruntime == OnnxRuntimeSettings(instances=2)
    assert settings.preprocessing == PreprocessingSettings(scale=1.0, reduced_decode=True)
    assert settings.labels == ("a", "b")
    assert current_candidate(source_in(tmp_path), is_graph=True) == candidate
    assert with_candidate(source, candidate, 4).settings == settings
    assert [path.name for path in tmp_path.iterdir()] == [SETTINGS_FILE]


def test_streams_that_were_not_measured_are_not_written(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"runtime": "openvino", "openvino": {"streams": 3}}')
    source, candidate = source_in(tmp_path), Candidate(runtime="openvino")
    write_settings(source, candidate, 4)
    assert with_candidate(source, candidate, 4).settings == read_settings(tmp_path)


def test_threads_of_onnxruntime_are_written_and_the_default_candidate_removes_settings(tmp_path: Path) -> None:
    batching = {"max_size": 8, "max_delay_ms": 2.5}
    file = write_settings(source_in(tmp_path), Candidate(8, 2.5, 2), 2)
    assert json.loads(file.read_text()) == {"batching": batching, "onnxruntime": {"threads": 2}}
    write_settings(source_in(tmp_path), FULL, 2)
    write_settings(source_in(tmp_path), Candidate(runtime="onnxruntime"), 2)
    assert json.loads(file.read_text()) == {"runtime": "onnxruntime"}


def test_settings_for_all_versions_are_kept_in_the_file_of_a_version(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"labels": ["a"]}')
    (tmp_path / "1").mkdir()
    write_settings(source_in(tmp_path / "1", tmp_path), Candidate(2, 1.0), 2)
    assert read_settings(tmp_path / "1").labels == ("a",)


def test_unreadable_settings_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text("{")
    with pytest.raises(ModelError, match="is not valid JSON"):
        write_settings(ModelSource(name="m", version="1", folder=tmp_path), Candidate(2), 2)
    assert (tmp_path / SETTINGS_FILE).read_text() == "{"


MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def measurement(batch: int, *, rate: float, lone: float = 5.0, cpu: float = 1.0) -> Measurement:
    return Measurement(candidate=Candidate(batch), rate=rate, p50=1, p99=2, single_latency=lone, cpu=cpu)


def with_rounds(batch: int, *rates: float) -> Measurement:
    rounds = tuple(measurement(batch, rate=rate) for rate in rates)
    return msgspec.structs.replace(measurement(batch, rate=sorted(rates)[len(rates) // 2]), rounds=rounds)


def test_best_candidate_depends_on_the_goal() -> None:
    candidates = [
        measurement(1, rate=100, lone=5), measurement(4, rate=150, lone=6), measurement(2, rate=90, lone=4, cpu=0.5),
    ]  # fmt: skip
    best = {goal: best_measurement(candidates, goal).candidate.batch for goal in ("throughput", "latency", "cost")}
    assert best == {"throughput": 4, "latency": 2, "cost": 2}


@pytest.mark.parametrize(
    ("second", "expected"),
    [((120, 60, 120), 2), ((120, 45, 120), 1), ((104, 52, 104), 1)],
    ids=["better", "once slower", "small gain"],
)
def test_candidate_must_be_better_than_a_simpler_one_in_every_round(second: Sequence[float], expected: int) -> None:
    measured = [with_rounds(1, 100, 50, 100), with_rounds(2, *second)]
    assert best_measurement(measured, "throughput").candidate.batch == expected


@pytest.mark.parametrize("name", ["classifier", "half_plus_two", "greeter"])
def test_every_candidate_is_measured(name: str) -> None:
    (source,) = model_at(MODELS / name)
    candidates = all_candidates([2], [1], 1.0)
    pairs = [(candidate, with_candidate(source, candidate, 2)) for candidate in candidates]
    rows = measure_candidates(pairs, [encode_image(rectangle())], 2, 0.05, rounds=2)
    assert [row.candidate for row in rows] == candidates
    assert all(row.rate > 0 and 0 < row.p50 <= row.p99 and row.single_latency > 0 and row.cpu > 0 for row in rows)
    assert [len(row.rounds) for row in rows] == [2, 2]


def test_measuring_stops_when_there_is_no_time() -> None:
    (source,) = model_at(MODELS / "half_plus_two")
    pairs = [(candidate, with_candidate(source, candidate, 1)) for candidate in all_candidates([2], [1], 1.0)]
    rows = measure_candidates(pairs, [b""], 1, 0.01, on_measured=lambda: False)
    assert [row.candidate for row in rows] == [pairs[0][0]]
