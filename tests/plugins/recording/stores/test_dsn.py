"""Addresses of stores."""

import pytest

from app.core.settings.server import SettingsError
from app.plugins.recording.stores.store import parse_dsn


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("x.db", "x.db"),
        ("/var/lib/x.db", "/var/lib/x.db"),
        ("sqlite:///x.db", "x.db"),
        ("sqlite:////var/lib/x.db", "/var/lib/x.db"),
        ("a folder/with: colon.db", "a folder/with: colon.db"),
    ],
)
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no file"),
        ("sqlite://", "names no file"),
        (":memory:", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite://host/x.db", "host or options"),
        ("sqlite:///x.db?mode=ro", "host or options"),
        ("mysql://me:hush@host/x", "unknown scheme, 'mysql'"),
        ("postgresql://me:hush@host", "names no database"),
        ("postgresql://me:hush@host:port/x", "cannot be read"),
        ("://", "cannot be read"),
    ],
)
def test_invalid_address_is_rejected_without_showing_password(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as raised:
        parse_dsn(text)
    assert "hush" not in str(raised.value)
