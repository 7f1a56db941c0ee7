"""Reading a store, SQLite's and PostgreSQL's alike: pages, batches, pictures, and what goes wrong."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.recording.address import read_address
from app.recording.images import ImageFile, ImageFolder
from app.recording.inference import RecordedImage, RecordedInference
from app.recording.query import QueryText, read_query
from app.recording.query_reader import Reader
from app.recording.sqlite_store import SqliteStore
from app.recording.store import Store
from tasks.exchange.error import ErrorKind, InferenceError
from tests.support.kept import DIGEST, EVERYTHING, NAMES, SECOND, entry, found, names, rows


@pytest.fixture
def reader(store: Store, url: str) -> Iterator[Reader]:
    """Reads a store of everything."""
    store.write(EVERYTHING)
    reader = Reader(read_address(url))
    yield reader
    reader.close()


def test_pages_follow_one_another_newest_first(reader: Reader, store: Store) -> None:
    seen: list[str] = []
    after = None
    while True:
        page = reader.page(read_query(QueryText()), 3, after)
        seen += names(page.inferences)
        if page.next is None:
            break
        after = page.next
        # What is recorded meanwhile is before the first page, and moves nothing.
        store.write([rows(f"new {after}")])
    assert seen == NAMES[::-1]


def test_everything_comes_in_batches(reader: Reader, store: Store) -> None:
    store.write([rows(f"many {number}", {"many": number}) for number in range(1201)])
    batches = list(reader.batches(read_query(QueryText(where=["many >= 0"]))))
    assert [len(each) for each in batches] == [500, 500, 201]
    assert [each.id for batch in batches for each in batch] == [f"many {number}" for number in reversed(range(1201))]
    (few,) = reader.batches(read_query(QueryText(where=["many >= 0"])), 7)
    assert names(few) == [f"many {number}" for number in range(1200, 1193, -1)]


def test_an_inference_comes_back_whole(reader: Reader, store: Store) -> None:
    entries = [entry("i", 2**70), entry("f", 3.0), entry("s", "ß\0" * 900), entry("d", {"a": [1, {"b": None}]})]
    records = [{"label": "car", "score": 0.5, "xmin": 1.0}]
    store.write([rows("whole", entries, records, image_digest=DIGEST, image_width=4, image_height=3, image_size=9)])
    assert reader.one("whole") == RecordedInference(
        id="whole",
        request_id="request whole",
        protocol="kserve-v2",
        model="detector",
        version="1",
        task_type="OBJECT_DETECTION",
        started=SECOND,
        duration=2500,
        metadata=entries,
        records=records,
        image=RecordedImage(digest=DIGEST, width=4, height=3, size=9),
    )
    assert reader.one("nobody") is None
    assert reader.one("whole\0") is None


def test_very_many_points_and_conditions(reader: Reader) -> None:
    ring = " ".join(f"{(number % 2) * 80 - 40},{number * 0.17 - 170}" for number in range(1999)) + " -60,0"
    assert found(reader, QueryText(polygon=ring)) == set()
    many = " and ".join(["frame > 0"] * 31) + ' and camera = "north"'
    assert found(reader, QueryText(where=[many])) == {"north", "both"}
    values = ", ".join(str(number) for number in range(1000))
    assert found(reader, QueryText(where=[f"frame in ({values})"])) == {"north", "south"}
    deep = ".".join(["a"] * 16)
    assert found(reader, QueryText(where=[f"{deep} = 1"])) == set()


def test_long_texts_are_found_by_what_is_indexed_of_them(reader: Reader, store: Store) -> None:
    store.write([rows("long", {"k" * 500: "v" * 5000})])
    assert found(reader, QueryText(where=[f'{"k" * 500} = "{"v" * 5000}"'])) == {"long"}


def test_a_member_that_cannot_be_named_is_refused(reader: Reader) -> None:
    with pytest.raises(InferenceError, match="Expected a member's name without quotes and backslashes"):
        found(reader, QueryText(where=[r'pose."a\"b" = 1']))


def test_nothing_is_found_in_an_empty_store(store: Store, url: str) -> None:
    reader = Reader(read_address(url))
    assert reader.page(read_query(QueryText(label="car", since="1h")), 10).inferences == []
    assert list(reader.batches(read_query(QueryText()))) == []
    reader.close()


def test_pictures(tmp_path: Path, store: Store, url: str) -> None:
    folder = ImageFolder(tmp_path / "images", durable=False)
    folder.open()
    folder.write([ImageFile(DIGEST, b"picture")])
    store.write(
        [
            rows("kept", image_digest=DIGEST, image_kept=True),
            rows("gone", image_digest="cd" * 32, image_kept=True),
            rows("not kept", image_digest=DIGEST),
            rows("none"),
        ]
    )
    reader = Reader(read_address(url), tmp_path / "images")
    pictures = {
        name: reader.picture(each) for name in ("kept", "gone", "not kept", "none") if (each := reader.one(name))
    }
    reader.close()
    assert pictures == {"kept": b"picture", "gone": None, "not kept": None, "none": None}


def test_a_digest_that_is_a_way_out_of_the_folder_is_none(tmp_path: Path, store: Store, url: str) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    store.write(
        [rows("evil", image_digest="./../secret", image_width=1, image_height=1, image_size=6, image_kept=True)]
    )
    reader = Reader(read_address(url), tmp_path / "images")
    evil = reader.one("evil")
    assert evil is not None
    assert reader.picture(evil) is None
    reader.close()


def test_a_file_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    written = SqliteStore(file)
    written.write([rows("old")])
    reader = Reader(read_address(str(file)))
    assert reader.one("old") is not None
    for part in tmp_path.iterdir():
        part.unlink()
    written.write([rows("new")])
    assert names(reader.page(read_query(QueryText()), 10).inferences) == ["new"]
    reader.close()
    written.close()


def test_a_query_that_takes_too_long_is_given_up(store: Store, url: str) -> None:
    store.write([rows(f"{number}", {"latitude": 10.0, "longitude": 1.0}) for number in range(1000)])
    ring = " ".join(f"{(number % 2) * 80 - 40},{number * 0.17 - 170}" for number in range(1999)) + " -60,0"
    reader = Reader(read_address(url), seconds=0.01)
    query = read_query(QueryText(polygon=ring, protocol="none"))
    with pytest.raises(InferenceError) as raised:
        reader.page(query, 10)
    reader.close()
    assert raised.value.kind is ErrorKind.DEADLINE_EXCEEDED
    assert "took more than 0.01 seconds" in raised.value.message


def test_nothing_is_written(reader: Reader, url: str) -> None:
    from sqlalchemy import delete

    from app.recording.tables import inferences

    with pytest.raises(InferenceError, match=r"read-?only"):
        reader._connection.rows(delete(inferences))  # pyright: ignore[reportPrivateUsage]
    assert found(reader, QueryText()) == set(NAMES)


def test_what_is_no_store_is_told_in_a_sentence(tmp_path: Path) -> None:
    missing, text, empty = tmp_path / "missing.db", tmp_path / "text.db", tmp_path / "empty.db"
    text.write_text("no database " * 1000)
    sqlite3.connect(empty).execute("CREATE TABLE other (x)").connection.close()
    for file, said in (
        (missing, "there is no such file"),
        (text, "file is not a database"),
        (empty, "no such table: inference_schema"),
    ):
        with pytest.raises(InferenceError, match=said):
            Reader(read_address(str(file))).page(read_query(QueryText()), 1)
    assert not missing.exists()


def test_a_store_of_a_later_version_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = SqliteStore(file)
    store.open()
    store.close()
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("UPDATE inference_schema SET version = 99")
    connection.close()
    reader = Reader(read_address(str(file)))
    with pytest.raises(InferenceError, match="a later Charioteer: version 99"):
        reader.page(read_query(QueryText()), 1)
    reader.close()


def test_a_database_that_does_not_answer_is_told_without_its_password() -> None:
    reader = Reader(read_address("postgresql://me:secret@127.0.0.1:1/none"))
    with pytest.raises(InferenceError) as raised:
        reader.page(read_query(QueryText()), 1)
    reader.close()
    assert raised.value.kind is ErrorKind.MODEL_NOT_READY
    assert "postgresql://127.0.0.1:1/none cannot be read" in raised.value.message
    assert "secret" not in raised.value.message
