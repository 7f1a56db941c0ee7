"""Recording settings, combinations that are rejected, and truths and reasons of inferences in both kinds of stores."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry

from app.core.settings.server import SettingsError
from app.plugins.recording.command import inferences
from app.plugins.recording.export.writing import Format, export_inferences
from app.plugins.recording.inference import RecordedImage, RecordedInference, Truth
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import open_recordings
from app.plugins.recording.service import open_recorder
from app.plugins.recording.settings import RecordingSettings
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import Store
from tests.plugins.recording.contents import contents
from tests.support.data.inference_events import detection_event
from tests.support.data.recorded_rows import matching_ids, recorded_inference, write_store


@pytest.fixture
def settings(tmp_path: Path) -> RecordingSettings:
    return RecordingSettings(record=str(tmp_path / "store.db"))


def rejection(settings: RecordingSettings) -> str:
    with pytest.raises(SettingsError) as rejected:
        open_recorder(settings, CollectorRegistry())
    return str(rejected.value)


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
    assert (row["entries"], row["image_kept"]) == ('[\n["camera","str","[redacted]"]]', 1)
    recorder.close(10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"record_images": Path("images")}, "--record-images needs --record"),
        ({"record_keep": 7.0}, "--record-keep needs --record"),
        ({"record_keep_images": 7.0}, "--record-keep-images needs --record"),
        ({"record_redact": "camera"}, "--record-redact needs --record"),
        ({"record": "store.db", "record_keep_images": 7.0}, "--record-keep-images needs --record-images"),
        (
            {"record": "store.db", "record_images": Path("images"), "record_keep": 7.0, "record_keep_images": 30.0},
            "--record-keep-images is 30 days, longer than the records' own 7 (--record-keep)",
        ),
    ],
)
def test_option_without_its_condition_is_rejected(options: dict[str, Any], message: str) -> None:
    assert rejection(RecordingSettings(**options)) == message


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


BOX: dict[str, object] = {"label": "car", "xmin": 1.0, "ymin": 2.0, "xmax": 30.0, "ymax": 40.0}
RIGHT = Truth(verdict="right", records=[BOX], complete=True, source="coco", comment="clear", time=5)
WRONG = Truth(verdict="wrong")


def inference(number: int, **fields: Any) -> RecordedInference:
    image = RecordedImage(digest=f"{number:064x}", width=64, height=48, size=10)
    records = [{**BOX, "score": 0.5, "label": "dog"}]
    return recorded_inference(f"{number}-0-0", started=number, image=image, records=records, **fields)


RECORDED = [
    inference(1, truth=RIGHT, probability=0.25),
    inference(2, truth=WRONG, reason="unsure", probability=0.5),
    inference(3),
]


@pytest.fixture
def filled(store: Store, url: str) -> str:
    store.write([to_rows(item) for item in RECORDED])
    return url


def test_filter_finds_inferences_by_truth_and_reason(filled: str) -> None:
    reader = open_recordings(filled)
    for query, expected in (
        (InferenceQuery(truth="yes"), "12"),
        (InferenceQuery(truth="no"), "3"),
        (InferenceQuery(truth="wrong"), "2"),
        (InferenceQuery(reason="sample"), "13"),
        (InferenceQuery(reason="no-trial"), "123"),
        (InferenceQuery(reason="unsure"), "2"),
        (InferenceQuery(reason="unsure", truth="no"), ""),
    ):
        assert matching_ids(reader, query) == {f"{number}-0-0" for number in expected}, query


@pytest.mark.parametrize(
    ("reason", "expected"), [(None, ["3-0-0", "1-0-0"]), ("trial", ["2-0-0"]), ("any", ["3-0-0", "2-0-0", "1-0-0"])]
)
def test_exports_leave_out_the_trials_of_a_store_and_say_so_if_nothing_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str | None, expected: list[str]
) -> None:
    recorded = inference(1, reason="unsure"), inference(2, reason="trial"), inference(3)
    store = write_store(tmp_path / "store.db", *recorded)
    out, again = tmp_path / "out.jsonl", tmp_path / "again.parquet"
    inferences(store, query=InferenceQuery(reason=reason), to=out)
    inferences(str(out), to=again)
    for file in (out, again):
        assert [item.id for item in open_recordings(str(file)).page(InferenceQuery(), 10).inferences] == expected
    assert "Trials" not in capsys.readouterr().err
    inferences(store, query=InferenceQuery(model="other", reason=reason), to=out)
    error = capsys.readouterr().err
    assert "Wrote 0 inferences" in error
    assert ("Trials" in error) == (reason is None)


def test_coco_with_truth_has_the_right_objects_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export_inferences([RECORDED], tmp_path / "found.jsonl", "jsonl")
    inferences(str(tmp_path / "found.jsonl"), to=tmp_path / "labels.json", content="truth")
    written = json.loads((tmp_path / "labels.json").read_text())
    assert [image["inference"] for image in written["images"]] == ["1-0-0"]
    assert [category["name"] for category in written["categories"]] == ["car"]
    assert "Skipped 2 inferences" in capsys.readouterr().err
    for file_format in {*get_args(Format)} - {"coco", "yolo"}:
        with pytest.raises(Exception, match="--with truth is for COCO and YOLO"):
            inferences(str(tmp_path / "found.jsonl"), to=tmp_path / "a", format=file_format, content="truth")
