"""Recording settings, and combinations that are rejected."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.core.settings.server import SettingsError
from app.plugins.recording.service import open_recorder
from app.plugins.recording.settings import RecordingSettings
from tests.plugins.recording.contents import contents
from tests.support.data.inference_events import detection_event


@pytest.fixture
def settings(tmp_path: Path) -> RecordingSettings:
    return RecordingSettings(record=str(tmp_path / "store.db"))


def rejection(settings: RecordingSettings) -> str:
    with pytest.raises(SettingsError) as refused:
        open_recorder(settings, CollectorRegistry())
    return str(refused.value)


def test_recording_is_off_by_default() -> None:
    metrics = CollectorRegistry()
    assert open_recorder(RecordingSettings(), metrics) is None
    assert list(metrics.collect()) == []


def test_recorded_event_is_in_the_store(settings: RecordingSettings, tmp_path: Path) -> None:
    settings = replace(settings, record_images=tmp_path / "images", record_redact="plate, camera")
    recorder = open_recorder(settings, CollectorRegistry())
    assert recorder is not None
    recorded = recorder.record(detection_event(metadata=[{"key": "camera", "type": "str", "value": "north"}]))
    assert recorded is not None
    recorded.result(60)
    (row,) = contents(str(tmp_path / "store.db"))
    assert (row["metadata"], row["image_kept"]) == ('[{"key":"camera","type":"str","value":"[redacted]"}]', 1)
    recorder.close(10)


def test_images_cannot_be_kept_longer_than_their_records(settings: RecordingSettings, tmp_path: Path) -> None:
    settings = replace(settings, record_images=tmp_path / "images", record_keep=7.0, record_keep_images=30.0)
    assert rejection(settings) == "--record-keep-images is 30 days, longer than the records' own 7 (--record-keep)"


def test_days_of_images_without_their_folder_are_rejected(settings: RecordingSettings) -> None:
    settings = replace(settings, record_images=None, record_keep_images=7.0)
    assert rejection(settings) == "--record-keep-images needs --record-images"


@pytest.mark.parametrize(
    "options",
    [{"record_images": Path("images")}, {"record_keep": 7.0}, {"record_keep_images": 7.0}, {"record_redact": "camera"}],
)
def test_recording_option_without_record_is_rejected(options: dict[str, Any]) -> None:
    (field,) = options
    assert rejection(RecordingSettings(**options)) == f"--{field.replace('_', '-')} needs --record"


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("record", "FOLDER/file", "FOLDER/file: file is not a database"),
        ("record", "postgresql://me:hush@127.0.0.1:1/store", "postgresql://127.0.0.1:1/store: "),
        ("record_images", "FOLDER/file/images", "[Errno 20] Not a directory"),
    ],
)
def test_unusable_store_or_image_folder_is_reported_at_start(
    settings: RecordingSettings, tmp_path: Path, option: str, value: str, reason: str
) -> None:
    (tmp_path / "file").write_bytes(b"certainly not a database" * 1000)
    path = value.replace("FOLDER", str(tmp_path))
    message = rejection(replace(settings, **{option: Path(path) if option == "record_images" else path}))
    assert message.startswith(f"The store of recordings cannot be used: {reason.replace('FOLDER', str(tmp_path))}")
    assert "hush" not in message


def test_best_effort_recording_starts_without_a_store(settings: RecordingSettings, tmp_path: Path) -> None:
    settings = replace(settings, record=str(tmp_path / "later" / "store.db"), record_mode="best-effort")
    metrics = CollectorRegistry()
    recorder = open_recorder(settings, metrics)
    assert recorder is not None
    assert recorder.record(detection_event()) is None
    (tmp_path / "later").mkdir()
    recorder.close(10)
    assert metrics.get_sample_value("charioteer_recording_recorded_total") == 1
