"""Behaviour that the SQLite and PostgreSQL stores share."""

import json

import pytest

from app.plugins.recording.row_converter import Redaction, RowConverter
from app.plugins.recording.stores.rows import Rows
from app.plugins.recording.stores.store import Store, StoreError, StoreFault
from tests.plugins.recording.conftest import open_store
from tests.plugins.recording.contents import contents
from tests.support.data.inference_events import detection_event, rejected_event

METADATA = [
    {"key": "camera", "type": "str", "value": "north"},
    {"key": "altitude", "type": "int", "value": "120"},
    {"key": "yaw", "type": "float", "value": "0.25"},
    {"key": "pose", "type": "dict", "value": '{"pitch": [1, 2]}'},
]


def rows(count: int = 1, *, started: int = 1_000_000, image: bytes = b"jpeg") -> list[Rows]:
    convert = RowConverter(Redaction(()), keep_images=True)
    events = [
        detection_event(metadata=METADATA, timestamp=1000 * (started + index), image_bytes=image)
        for index in range(count)
    ]
    return [row for event in events for row in convert(event).rows]


def test_written_rows_are_read_back(store: Store, url: str) -> None:
    (written,) = rows()
    store.write([written])
    (row,) = contents(url)
    assert row.pop("number") == 1
    assert row == written.inference
    entries = [tuple(entry.values())[2:] for entry in contents(url, "inference_metadata")]
    assert [(*values, document and json.loads(document)) for *values, document in entries] == [
        ("camera", None, None, "north", None),
        ("altitude", 120, None, None, None),
        ("yaw", None, 0.25, None, None),
        ("pose", None, None, None, {"pitch": [1, 2]}),
    ]
    labels = {label["label"]: (round(label["score"], 3), label["count"]) for label in contents(url, "inference_labels")}
    assert labels == {"ship": (0.9, 2), "quay": (0.8, 1), "crane": (0.7, 1), "buoy": (0.6, 1)}


def test_numbers_increase_in_order_of_writing(store: Store, url: str) -> None:
    written = rows(5)
    store.write(written[:2])
    store.write(written[2:])
    assert [row["id"] for row in contents(url)] == [row.inference["id"] for row in written]


def test_unusual_text_is_stored(store: Store, url: str) -> None:
    text = "\0 \N{PILE OF POO} ' \" ; DROP TABLE inferences; -- \\u0000"
    value = json.dumps({text: [text, 1e300, {"deep": None}]})
    metadata = [
        {"key": text, "type": "str", "value": text * 1000},
        {"key": "d", "type": "dict", "value": value},
        {"key": "i", "type": "int", "value": str(2**80)},
    ]
    convert = RowConverter(Redaction(()), keep_images=False)
    event = detection_event(
        metadata=metadata, parameters={text: text}, labels=(text, "b"), model_name=text * 100, base_id=text
    )
    store.write([*convert(event).rows, *convert(rejected_event()).rows])
    first, second = contents(url)
    assert json.loads(first["metadata"])[0]["value"] == text * 1000
    assert json.loads(first["parameters"]) == {text: text}
    assert second["error"] == "model_not_found"


def test_deleted_rows_are_removed_from_all_tables(store: Store, url: str) -> None:
    written = rows(10)
    store.write(written)
    assert store.delete_before(1_000_004, limit=3) == 3
    assert store.delete_before(1_000_004, limit=3) == 1
    assert store.delete_before(1_000_004, limit=3) == 0
    remaining = {row["number"] for row in contents(url)}
    assert len(remaining) == 6
    for table in ("inference_metadata", "inference_labels"):
        assert {row["number"] for row in contents(url, table)} == remaining


def test_image_is_in_use_while_a_recent_inference_refers_to_it(store: Store, url: str) -> None:
    old, new = rows(started=1000, image=b"old"), rows(started=5000, image=b"new")
    store.write([*old, *new])
    digests = [row.inference["image_digest"] or "" for row in (*old, *new)]
    assert store.images_since([*digests, "00"], 1000) == set(digests)
    assert store.images_since(digests, 1001) == {digests[1]}
    store.mark_images_deleted(digests[:1])
    assert [bool(row["image_kept"]) for row in contents(url)] == [False, True]
    assert store.images_since(digests, 0) == {digests[1]}


def test_invalid_row_rejects_its_whole_batch_and_what_is_written_again_is_not_duplicated(
    store: Store, url: str
) -> None:
    written, (bad,) = rows(3), rows()
    invalid = Rows(inference={**bad.inference, "duration": 2**70}, metadata=(), labels=())
    for stored in ([], written):
        store.write(stored)
        with pytest.raises(StoreError) as raised:
            store.write([*written, invalid])
        assert raised.value.fault is StoreFault.REJECTED
        assert len(contents(url)) == len(stored)
    store.write(written)
    assert [row["id"] for row in contents(url)] == [row.inference["id"] for row in written]
    for table in ("inference_metadata", "inference_labels"):
        assert {row["number"] for row in contents(url, table)} == {row["number"] for row in contents(url)}


def test_two_writers_take_turns(store: Store, url: str) -> None:
    other = open_store(url)
    other.open()
    for _ in range(3):
        store.write(rows(2))
        other.write(rows(2))
    other.close()
    stored = contents(url)
    assert len({row["number"] for row in stored}) == len({row["id"] for row in stored}) == 12
