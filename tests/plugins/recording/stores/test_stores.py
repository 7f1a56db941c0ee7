"""Addresses of stores, behaviour that SQLite and PostgreSQL share, and rows that queries search."""

import json

import msgspec
import pytest

from app.core.settings.server import SettingsError
from app.plugins.recording.row_converter import Redaction, RowConverter
from app.plugins.recording.stores.rows import Rows, best_labels
from app.plugins.recording.stores.store import Store, StoreError, StoreFault, parse_dsn
from tasks.image_classification import LabelledScore
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
    assert (row.pop("number"), row.pop("entries")) == (1, written.metadata)
    assert row == written.recording
    lines = (
        '["camera","str","north"]',
        '["altitude","number",120]',
        '["yaw","number",0.25]',
        '["pose","dict",{"pitch":[1,2]}]',
    )
    assert written.metadata == "[\n" + ",\n".join(lines) + "]"
    assert json.loads(row["selection"]) == {"reason": None, "probability": 1.0}
    labels = {label["label"]: round(label["score"], 3) for label in contents(url, "inference_labels")}
    assert labels == {"ship": 0.9, "quay": 0.8, "crane": 0.7, "buoy": 0.6}


def test_unusual_text_is_stored(store: Store, url: str) -> None:
    text = "\0 \N{PILE OF POO} ' \" ; DROP TABLE recordings; -- \\u0000"
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
    assert json.loads(first["entries"])[0] == [text, "str", text * 1000]
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
    for table in ("inference_labels", "recordings_metadata"):
        assert {row["number"] for row in contents(url, table)} == remaining


def test_image_is_in_use_while_a_recent_inference_refers_to_it(store: Store, url: str) -> None:
    old, new = rows(started=1000, image=b"old"), rows(started=5000, image=b"new")
    store.write([*old, *new])
    digests = [row.recording["image_digest"] or "" for row in (*old, *new)]
    assert store.images_since([*digests, "00"], 1000) == set(digests)
    assert store.images_since(digests, 1001) == {digests[1]}
    store.mark_images_deleted(digests[:1])
    assert [bool(row["image_kept"]) for row in contents(url)] == [False, True]
    assert store.images_since(digests, 0) == {digests[1]}


def test_invalid_row_rejects_its_batch_and_what_is_written_again_is_not_duplicated(store: Store, url: str) -> None:
    written, (bad,) = rows(3), rows()
    invalid = msgspec.structs.replace(bad, recording={**bad.recording, "duration": 2**70})
    for stored in ([], written):
        store.write(stored)
        with pytest.raises(StoreError) as raised:
            store.write([*written, invalid])
        assert raised.value.fault is StoreFault.REJECTED
        assert len(contents(url)) == len(stored)
    store.write(written)
    assert [row["id"] for row in contents(url)] == [row.recording["id"] for row in written]
    numbers = {row["number"] for row in contents(url)}
    for table in ("inference_labels", "recordings_metadata"):
        assert {row["number"] for row in contents(url, table)} == numbers


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


CLASSES = [LabelledScore(f"class {index}", index / 1000) for index in range(1000)]
LONG = "x" * 400


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (
            [LabelledScore("ship", 0.3), LabelledScore("quay", 0.5), LabelledScore("ship", 0.8)],
            {"quay": 0.5, "ship": 0.8},
        ),
        ([{"label": "sky", "score": 0.5}, {"label": "sky", "score": 0.75}], {"sky": 0.75}),
        ([{"label": "sky"}, {"label": "sky"}, "no record"], {"sky": None}),
        ([LabelledScore("sky", float("nan"))], {"sky": None}),
        ([{"label": "sky", "score": 1}], {"sky": 1.0}),
        (CLASSES, {f"class {index}": index / 1000 for index in range(984, 1000)}),
        (CLASSES[:12], {"class 11": 0.011, "class 10": 0.01}),
        ([LabelledScore(LONG + "a", 0.9), LabelledScore(LONG + "b", 0.5)], {LONG: 0.9}),
    ],
)
def test_likeliest_labels_have_a_row_with_their_best_score(
    records: list[object], expected: dict[str, float | None]
) -> None:
    assert best_labels(records) == expected


def test_documents_are_set_replaced_and_cleared(store: Store, url: str) -> None:
    first, second = rows(2)
    store.write([first, second])
    names = [row.recording["id"] for row in (first, second)]
    assert [*store.set_documents("shadow", {names[1]: {"version": "2"}, "gone": {}})] == [names[1]]
    store.set_documents("truth", {name: {"verdict": "wrong", "comment": "\0 ß"} for name in names})
    store.set_documents("truth", {names[0]: None})
    stored = contents(url)
    assert [row["truth"] for row in stored] == [None, '{"verdict":"wrong","comment":"\\u0000 ß"}']
    assert [row["shadow"] for row in stored] == [None, '{"version":"2"}']
