"""Which set-ups are compared, and how the best one is written."""

import json
from pathlib import Path

import msgspec
import pytest

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
from app.plugins.tuning.candidates import (
    Candidate,
    all_candidates,
    current_candidate,
    variants,
    with_candidate,
    write_settings,
)

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
