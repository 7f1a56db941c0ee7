"""Reading of SQLite and PostgreSQL stores: pages, batches, images and errors."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from app.plugins.recording.images import ImageFile, ImageFolder
from app.plugins.recording.inference import RecordedImage
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import Store, parse_dsn
from tasks.inference.error import ErrorKind, InferenceError
from tests.plugins.recording.conftest import open_store
from tests.plugins.recording.contents import execute
from tests.plugins.recording.interruptible_proxy import InterruptibleProxy
from tests.support.data.recorded_rows import (
    ALL_IDS,
    ALL_ROWS,
    DIGEST,
    Value,
    inference_ids,
    matching_ids,
    metadata_entry,
    recorded_inference,
    recorded_rows,
    write_store,
)
from tests.support.servers.postgres import PostgresServer


def test_pages_are_sorted_newest_first_and_do_not_shift(store: Store, url: str) -> None:
    store.write(ALL_ROWS)
    reader, seen, after = RecordingReader(parse_dsn(url)), list[str](), None
    while True:
        page = reader.page(InferenceQuery(), 3, after)
        seen += inference_ids(page.inferences)
        if page.next is None:
            break
        after = int(page.next)
        # New inferences sort before the first page, so later pages do not shift.
        store.write([recorded_rows(f"new {after}")])
    assert seen == ALL_IDS[::-1]


def test_full_last_page_has_no_next_page(reader: RecordingReader) -> None:
    assert reader.page(InferenceQuery(), len(ALL_IDS)).next is None
    assert reader.page(InferenceQuery(), len(ALL_IDS) - 1).next is not None


def test_batches_contain_all_matches_newest_first(store: Store, url: str) -> None:
    reader = RecordingReader(parse_dsn(url))
    assert list(reader.batches(InferenceQuery())) == []
    store.write([recorded_rows(f"many {number}", {"many": number}) for number in range(1201)])
    batches = [inference_ids(batch) for batch in reader.batches(InferenceQuery(where=["many >= 0"]))]
    assert [len(batch) for batch in batches] == [500, 500, 201]
    assert [name for batch in batches for name in batch] == [f"many {number}" for number in reversed(range(1201))]
    (few,) = reader.batches(InferenceQuery(where=["many >= 0"]), 7)
    assert inference_ids(few) == batches[0][:7]


def test_inference_is_read_back_completely(store: Store, url: str) -> None:
    values: dict[str, Value] = {"i": 2**70, "f": 3.0, "s": "ß\0" * 900, "d": {"a": [1, {"b": None}]}}
    entries = [metadata_entry(*pair) for pair in values.items()]
    records = [{"label": "car", "score": 0.5, "xmin": 1.0}]
    image = {"image_digest": DIGEST, "image_width": 4, "image_height": 3, "image_size": 9}
    store.write([recorded_rows("whole", entries, records, **image), recorded_rows("long", {"k" * 500: "v" * 5000})])
    reader = RecordingReader(parse_dsn(url))
    stored_image = RecordedImage(digest=DIGEST, width=4, height=3, size=9)
    assert reader.get("whole") == recorded_inference(
        "whole", request_id="request whole", metadata=entries, records=records, image=stored_image
    )
    for name in ("missing", "whole\0", "\ud800"):
        with pytest.raises(InferenceError, match="There is no inference"):
            reader.get(name)
    assert matching_ids(reader, InferenceQuery(where=[f'{"k" * 500} = "{"v" * 5000}"'])) == {"long"}


def test_image_is_returned_only_when_it_was_stored_in_the_folder(tmp_path: Path, store: Store, url: str) -> None:
    ImageFolder(tmp_path / "images", durable=False).write([ImageFile(DIGEST, b"picture")])
    (tmp_path / "secret").write_bytes(b"secret")
    digests = {"kept": DIGEST, "gone": "cd" * 32, "evil": "./../secret"}
    store.write([recorded_rows(name, image_digest=digest, image_kept=True) for name, digest in digests.items()])
    store.write([recorded_rows("not kept", image_digest=DIGEST), recorded_rows("none")])
    reader = RecordingReader(parse_dsn(url), tmp_path / "images")
    images = {inference.id: reader.image(inference) for inference in reader.page(InferenceQuery(), 9).inferences}
    assert images == {"kept": b"picture", "gone": None, "evil": None, "not kept": None, "none": None}


def test_replaced_file_is_reopened(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    store = SqliteStore(file)
    store.write([recorded_rows("old")])
    reader = RecordingReader(parse_dsn(str(file)))
    assert reader.get("old").id == "old"
    for path in tmp_path.iterdir():
        path.unlink()
    store.write([recorded_rows("new")])
    assert inference_ids(reader.page(InferenceQuery(), 10).inferences) == ["new"]
    store.close()


def test_slow_query_exceeds_its_deadline(filled_url: str) -> None:
    reader = RecordingReader(parse_dsn(filled_url), seconds=0.2)
    steps = "WITH RECURSIVE steps AS (SELECT 1 AS step UNION ALL SELECT step + 1 FROM steps)"
    with pytest.raises(InferenceError, match=r"took more than 0\.2 seconds") as raised:
        reader.run(lambda connection: connection.exec_driver_sql(f"{steps} SELECT max(step) FROM steps").all())
    assert raised.value.kind is ErrorKind.DEADLINE_EXCEEDED


@pytest.mark.parametrize("filled_url", ["postgresql"], indirect=True)
def test_first_queries_at_once_do_not_wait_for_each_other(filled_url: str) -> None:
    for _ in range(5):
        reader = RecordingReader(parse_dsn(filled_url), seconds=60)
        with ThreadPoolExecutor(2) as threads:
            pages = [threads.submit(reader.page, InferenceQuery(), 1) for _ in range(2)]
            assert len({page.result(60).inferences[0].id for page in pages}) == 1


def test_query_whose_connection_is_silent_exceeds_its_deadline(postgres: PostgresServer, postgres_url: str) -> None:
    with closing(open_store(postgres_url)) as store:
        store.open()
    with closing(InterruptibleProxy(postgres.port)) as proxy:
        reader = RecordingReader(parse_dsn(postgres.dsn("reused", proxy.port)), seconds=1)
        assert reader.page(InferenceQuery(), 1).inferences == []
        proxy.silence()
        with pytest.raises(InferenceError, match="took more than 1 seconds") as raised:
            reader.page(InferenceQuery(), 1)
    assert raised.value.kind is ErrorKind.DEADLINE_EXCEEDED


def test_file_that_is_not_a_store_is_reported(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 1000)
    execute(str(tmp_path / "empty.db"), "CREATE TABLE other (x)")
    for name, message in (
        ("missing.db", "there is no such file"),
        ("text.db", "file is not a database"),
        ("empty.db", "no such table: inference_schema"),
        (".", "it is a folder"),
    ):
        with pytest.raises(InferenceError, match=message):
            RecordingReader(parse_dsn(str(tmp_path / name))).page(InferenceQuery(), 1)
    assert not (tmp_path / "missing.db").exists()


def test_store_of_later_version_is_rejected(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store.db")
    execute(store, "UPDATE inference_schema SET version = 99")
    reader = RecordingReader(parse_dsn(store))
    with pytest.raises(InferenceError, match="version 99, this Charioteer reads 4: a later Charioteer wrote them"):
        reader.page(InferenceQuery(), 1)


def test_unreachable_database_error_hides_the_password() -> None:
    reader = RecordingReader(parse_dsn("postgresql://me:secret@127.0.0.1:1/none"))
    with pytest.raises(InferenceError, match=r"postgresql://127\.0\.0\.1:1/none cannot be read") as raised:
        reader.page(InferenceQuery(), 1)
    assert raised.value.kind is ErrorKind.MODEL_NOT_READY
    assert "secret" not in raised.value.message
