"""Addresses of stores, behaviour that SQLite and PostgreSQL share, and rows that queries search."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.settings.server import SettingsError
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.row_converter import Redaction, RowConverter
from app.plugins.recording.stores.rows import LabelRow, MetadataRow, Rows, label_rows, metadata_rows, to_rows
from app.plugins.recording.stores.store import Store, StoreError, StoreFault, parse_dsn
from metadata.request import MetadataEntry
from tasks.image_classification import LabelledScore
from tasks.token_classification import Entity
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
    times = range(1000 * started, 1000 * (started + count), 1000)
    events = [detection_event(metadata=METADATA, timestamp=time, image_bytes=image) for time in times]
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


def test_invalid_row_rejects_its_batch_and_what_is_written_again_is_not_duplicated(store: Store, url: str) -> None:
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


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("x.db", "x.db"), ("sqlite:///x.db", "x.db"), ("sqlite:////var/lib/x.db", "/var/lib/x.db"),
        ("a folder/with: colon.db", "a folder/with: colon.db"),
    ],
)  # fmt: skip
def test_file_is_given_as_path_or_url(text: str, file: str) -> None:
    address = parse_dsn(text)
    assert address.dialect == "sqlite"
    assert str(address.file) == file


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_shown_database_address_has_no_credentials(scheme: str) -> None:
    address = parse_dsn(f"{scheme}://me:hush@db.internal:5433/records?sslmode=require&passfile=hush")
    assert address.dialect == "postgresql"
    assert address.display_name == "postgresql://db.internal:5433/records"
    assert address.url.drivername == "postgresql+asyncpg"
    assert address.url.query["ssl"] == "require"


INVALID = {
    "names no file": ("", "sqlite://", ":memory:", "sqlite:///:memory:"),
    "host or options": ("sqlite://host/x.db", "sqlite:///x.db?mode=ro"),
    "unknown scheme, 'mysql'": ("mysql://me:hush@host/x",),
    "names no database": ("postgresql://me:hush@host",),
    "cannot be read": ("postgresql://me:hush@host:port/x", "://"),
}


@pytest.mark.parametrize(("text", "message"), [(text, key) for key, texts in INVALID.items() for text in texts])
def test_invalid_address_is_rejected_without_showing_password(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        parse_dsn(text)
    assert "hush" not in str(raised.value)


class Labelled(msgspec.Struct):
    label: str


@pytest.mark.parametrize(
    ("value", "iv", "fv"),
    [(2**63 - 1, 2**63 - 1, None), (2**63, None, 2.0**63), (-(2**63), -(2**63), None), (-(2**70), None, -(2.0**70))],
)
def test_integer_above_64_bits_is_stored_as_float(value: int, iv: int | None, fv: float | None) -> None:
    assert metadata_rows([MetadataEntry("k", "int", value)]) == [MetadataRow(0, "k", iv=iv, fv=fv)]


def test_unfilterable_values_have_no_row() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"in": deep}
    huge = MetadataEntry("huge", "int", 10**400)
    entries = [huge, MetadataEntry("deep", "dict", deep), MetadataEntry("a", "str", "")]
    assert metadata_rows(entries) == [MetadataRow(2, "a", tv="")]


def test_texts_are_truncated_and_number_of_rows_is_limited() -> None:
    entries = [MetadataEntry("k" * 1000, "str", "v" * 1000)] * 1000
    stored = metadata_rows(entries)
    assert len(stored) == 256
    assert stored[0] == MetadataRow(0, "k" * 400, tv="v" * 400)


_texts = st.text("\0\\u0a", max_size=8)


@given(st.recursive(_texts, lambda inner: st.lists(inner) | st.dictionaries(_texts, inner), max_leaves=5))
def test_document_never_contains_null_character(value: Any) -> None:
    stored = metadata_rows([MetadataEntry("k", "dict", {"value": value})])
    for row in stored:
        assert row.jv is not None
        assert "\0" not in json.dumps(json.loads(row.jv), ensure_ascii=False)


def test_label_row_has_best_score_and_count() -> None:
    records = [LabelledScore("ship", 0.3), LabelledScore("quay", 0.5), LabelledScore("ship", 0.8)]
    assert sorted(label_rows(records)) == [LabelRow("quay", 0.5, 1), LabelRow("ship", 0.8, 2)]


def test_label_of_an_entity_is_its_group() -> None:
    entity = {"entity_group": "PER", "score": 0.5, "word": "Ann", "start": 0, "end": 3}
    assert label_rows([entity, Entity("PER", 0.75, "Bo", 4, 6)]) == [LabelRow("PER", 0.75, 2)]


def test_label_row_can_have_no_score() -> None:
    assert label_rows([Labelled("sky"), Labelled("sky"), "no record"]) == [LabelRow("sky", None, 2)]
    assert label_rows([LabelledScore("sky", float("nan"))]) == [LabelRow("sky", None, 1)]
    assert label_rows([{"label": "sky", "score": 1}]) == [LabelRow("sky", 1.0, 1)]


def test_only_likeliest_classes_have_label_rows() -> None:
    records = [LabelledScore(f"class {index}", index / 1000) for index in range(1000)]
    scores = {row.label: row.score for row in label_rows(records)}
    assert scores == {f"class {index}": index / 1000 for index in range(984, 1000)}
    assert [row.label for row in label_rows(records[:12])] == ["class 11", "class 10"]


def test_labels_with_same_prefix_keep_best_score() -> None:
    long = "x" * 400
    assert label_rows([LabelledScore(long + "a", 0.9), LabelledScore(long + "b", 0.5)]) == [LabelRow(long, 0.9, 1)]


@pytest.mark.parametrize(
    ("latitude", "longitude", "expected"),
    [
        (51, 0, (51.0, 0.0)),
        ("51.5", "-0.1", (51.5, -0.1)),
        (90.0, -180.0, (90.0, -180.0)),
        (0.0, 180.5, (None, None)),
        *((latitude, 0.0, (None, None)) for latitude in (90.1, "north", "nan", None, {"deg": 1})),
    ],
)
def test_position_needs_two_numbers_in_range(latitude: Any, longitude: Any, expected: Any) -> None:
    entries = [MetadataEntry("longitude", "?", longitude), MetadataEntry("latitude", "?", latitude)]
    inference = RecordedInference(id="a", protocol="v2", model="detector", started=0, duration=0, metadata=entries)
    row = to_rows(inference).inference
    assert (row["latitude"], row["longitude"]) == expected
