"""A database, and what may happen on the way to it."""

import threading
from collections.abc import Iterator

import pytest

from app.recording.address import read_address
from app.recording.postgres_store import PostgresStore
from app.recording.store import StoreError, StoreFault
from tests.app.recording.contents import contents, execute, select
from tests.app.recording.cut_line import CutLine
from tests.app.recording.test_stores import rows
from tests.support.postgres import PostgresServer


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(read_address(postgres_url))
    store.open()
    yield store
    store.close()


@pytest.fixture
def line(postgres: PostgresServer) -> Iterator[CutLine]:
    """A line to the server that can be cut."""
    with CutLine(postgres.port) as line:
        yield line


def behind(line: CutLine, url: str, postgres: PostgresServer) -> PostgresStore:
    """A store at the other end of the line."""
    return PostgresStore(read_address(url.replace(f":{postgres.port}/", f":{line.port}/")))


def test_a_connection_that_was_lost_is_made_again_without_a_word(
    line: CutLine, postgres_url: str, postgres: PostgresServer
) -> None:
    store = behind(line, postgres_url, postgres)
    store.open()
    store.write(rows(2))
    line.cut()
    line.mend()
    store.write(rows(2))
    assert len(contents(postgres_url)) == 4
    store.close()


def test_a_cut_line_is_told_and_healed(line: CutLine, postgres_url: str, postgres: PostgresServer) -> None:
    store = behind(line, postgres_url, postgres)
    store.open()
    line.cut()
    written = rows(2)
    with pytest.raises(StoreError) as refused:
        store.write(written)
    assert refused.value.fault is StoreFault.UNREACHABLE
    assert "secret" not in str(refused.value)
    line.mend()
    store.write(written)
    assert len(contents(postgres_url)) == 2
    store.close()


def test_what_was_committed_when_the_line_was_cut_is_not_doubled(
    line: CutLine, postgres_url: str, postgres: PostgresServer
) -> None:
    store = behind(line, postgres_url, postgres)
    store.open()
    line.cut_before_the_answer_to(b"COMMIT")
    written = rows(3)
    store.write(written)
    found = contents(postgres_url)
    assert [each["id"] for each in found] == [each.inference.id for each in written]
    assert line.cuts == 1
    numbers = {each["number"] for each in found}
    assert {each["number"] for each in contents(postgres_url, "inference_labels")} == numbers
    store.close()


def test_a_server_that_ends_its_connections_is_asked_again(store: PostgresStore, postgres_url: str) -> None:
    store.write(rows())
    select(
        postgres_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid != pg_backend_pid()",
    )
    store.write(rows())
    assert len(contents(postgres_url)) == 2


def test_no_server_and_no_database_are_told(postgres: PostgresServer) -> None:
    for address in (postgres.address("nowhere"), postgres.address("test", port=1)):
        store = PostgresStore(read_address(address))
        with pytest.raises(StoreError) as refused:
            store.open()
        assert refused.value.fault is StoreFault.UNREACHABLE
        assert "secret" not in str(refused.value)
        store.close()


def test_a_database_that_takes_no_writing_is_told(store: PostgresStore, postgres_url: str) -> None:
    store.write(rows())
    execute(postgres_url, f"ALTER DATABASE {postgres_url.rpartition('/')[2]} SET default_transaction_read_only = on")
    other = PostgresStore(read_address(postgres_url))
    other.open()
    with pytest.raises(StoreError, match="read-only") as refused:
        other.write(rows())
    assert refused.value.fault is StoreFault.FAILED
    other.close()


def test_servers_that_start_at_once_make_the_tables_once(postgres_url: str) -> None:
    stores = [PostgresStore(read_address(postgres_url)) for _ in range(4)]
    failures: list[BaseException] = []

    def work(store: PostgresStore) -> None:
        try:
            store.open()
            for _ in range(5):
                store.write(rows(4))
            store.close()
        except BaseException as error:  # noqa: BLE001  told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = contents(postgres_url)
    assert len({each["number"] for each in found}) == len({each["id"] for each in found}) == 80
