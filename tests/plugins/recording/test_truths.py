"""Truths and reasons of inferences in stores of both kinds: filters, SQL, exports, deletion."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from app.plugins.recording.command import inferences
from app.plugins.recording.export.writing import Format, export
from app.plugins.recording.inference import RecordedImage, RecordedInference, Truth
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import open_recordings
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.store import Store
from tasks.inference.error import InferenceError
from tests.plugins.recording.contents import contents
from tests.support.data.recorded_rows import matching_ids, recorded_inference, write_store

BOX: dict[str, object] = {"label": "car", "xmin": 1.0, "ymin": 2.0, "xmax": 30.0, "ymax": 40.0}
RIGHT = Truth(verdict="right", records=[BOX], complete=True, source="coco", author="ann", comment="clear", time=5)
WRONG = Truth(verdict="wrong", revision=3)


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


def test_withdrawn_and_replaced_truths_do_not_count(store: Store, filled: str) -> None:
    with pytest.raises(InferenceError, match="truth: Expected yes, no or wrong, got 'maybe'"):
        open_recordings(filled).page(InferenceQuery(truth="maybe"), 1)
    withdrawn = "UPDATE inference_truths SET current = FALSE WHERE verdict = 'wrong'"
    store.transaction(lambda connection: connection.exec_driver_sql(withdrawn))
    reader = open_recordings(filled)
    assert reader.page(InferenceQuery(truth="wrong"), 10).inferences == []
    assert [item.truth for item in reader.page(InferenceQuery(), 10).inferences] == [None, None, RIGHT]
    result = reader.sql("SELECT id, verdict, source FROM recorded JOIN recorded_truths USING (number)")
    assert [tuple(row) for row in result.rows] == [("1-0-0", "right", "coco")]


def test_truth_is_deleted_with_its_inference(store: Store, filled: str) -> None:
    assert store.delete_before(2, 100) == 1
    assert [row["number"] for row in contents(filled, "inference_truths")] == [2]


def test_parquet_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    # pyarrow has no type annotations.
    parquet: Any = import_module("pyarrow.parquet")
    export([RECORDED[2:]], tmp_path / "new.parquet", "parquet")
    table = parquet.read_table(tmp_path / "new.parquet")
    parquet.write_table(table.drop_columns(["reason", "probability", "truth"]), tmp_path / "old.parquet")
    assert open_recordings(str(tmp_path / "old.parquet")).page(InferenceQuery(), 10).inferences == RECORDED[2:]


def test_coco_with_truth_has_the_right_objects_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export([RECORDED], tmp_path / "found.jsonl", "jsonl")
    inferences(str(tmp_path / "found.jsonl"), to=tmp_path / "labels.json", content="truth")
    written = json.loads((tmp_path / "labels.json").read_text())
    assert [image["inference"] for image in written["images"]] == ["1-0-0"]
    assert [category["name"] for category in written["categories"]] == ["car"]
    assert "Skipped 2 inferences" in capsys.readouterr().err
    for file_format in {*get_args(Format)} - {"coco", "yolo"}:
        with pytest.raises(Exception, match="--with truth is for COCO and YOLO"):
            inferences(str(tmp_path / "found.jsonl"), to=tmp_path / "a", format=file_format, content="truth")
