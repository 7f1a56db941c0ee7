"""The PostgreSQL store, also when connections fail."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from app.plugins.recording.stores.postgres_store import PostgresStore
from app.plugins.recording.stores.store import StoreError, StoreFault, parse_dsn
from tests.plugins.recording.contents import contents, execute
from tests.plugins.recording.interruptible_proxy import InterruptibleProxy
from tests.plugins.recording.stores.test_stores import rows
from tests.support.servers.postgres import PostgresServer


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(parse_dsn(postgres_url))
    store.open()
    yield store
    store.close()


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[InterruptibleProxy]:
    with closing(InterruptibleProxy(postgres.port)) as proxy:
        yield proxy


@pytest.fixture
def behind(
    proxy: InterruptibleProxy, postgres_url: str, postgres: PostgresServer, request: pytest.FixtureRequest
) -> Iterator[PostgresStore]:
    """Open a store that connects through the proxy; the parameter is its timeout in seconds."""
    url = postgres_url.replace(f":{postgres.port}/", f":{proxy.port}/")
    store = PostgresStore(parse_dsn(url), getattr(request, "param", 5))
    store.open()
    yield store
    store.close()


@pytest.mark.parametrize(("behind", "is_silent"), [(5, False), (1, True)], indirect=["behind"])
def test_closed_or_silent_server_is_unreachable_and_the_store_recovers(
    behind: PostgresStore,
    is_silent: bool,
    proxy: InterruptibleProxy,
    postgres_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (proxy.silence if is_silent else proxy.cut)()
    written = rows(2)
    with pytest.raises(StoreError) as raised:
        behind.write(written)
    assert raised.value.fault is StoreFault.UNREACHABLE
    assert "secret" not in str(raised.value)
    assert caplog.messages == []
    proxy.cut()
    proxy.restore()
    behind.write(written)
    assert len(contents(postgres_url)) == 2


def test_unanswered_commit_is_not_repeated(behind: PostgresStore, proxy: InterruptibleProxy, postgres_url: str) -> None:
    proxy.cut_before_reply_to(b"COMMIT")
    written = rows(3)
    behind.write(written)
    assert [row["id"] for row in contents(postgres_url)] == [row.recording["id"] for row in written]
    assert proxy.cuts == 1


def test_connection_terminated_by_server_is_reopened(store: PostgresStore, postgres_url: str) -> None:
    store.write(rows())
    others = "datname = current_database() AND pid != pg_backend_pid()"
    execute(postgres_url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    store.write(rows())
    assert len(contents(postgres_url)) == 2


def test_missing_server_or_database_is_unreachable(postgres: PostgresServer) -> None:
    for address in (postgres.dsn("nowhere"), postgres.dsn("test", port=1)):
        with closing(PostgresStore(parse_dsn(address))) as store, pytest.raises(StoreError) as raised:
            store.open()
        assert raised.value.fault is StoreFault.UNREACHABLE
        assert "secret" not in str(raised.value)


def test_read_only_database_is_reported(store: PostgresStore, postgres_url: str) -> None:
    store.write(rows())
    execute(postgres_url, f"ALTER DATABASE {postgres_url.rpartition('/')[2]} SET default_transaction_read_only = on")
    with closing(PostgresStore(parse_dsn(postgres_url))) as other:
        other.open()
        with pytest.raises(StoreError, match="read-only", check=lambda error: error.fault is StoreFault.FAILED):
            other.write(rows())


def test_concurrent_stores_create_the_tables_once(postgres_url: str) -> None:
    def write_batches(_: int) -> None:
        with closing(PostgresStore(parse_dsn(postgres_url))) as store:
            store.open()
            for _ in range(5):
                store.write(rows(4))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write_batches, range(4)))
    stored = contents(postgres_url)
    assert len({row["number"] for row in stored}) == len({row["id"] for row in stored}) == 80
