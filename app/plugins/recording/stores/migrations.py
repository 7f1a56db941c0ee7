"""Migrate the tables of a store to the current version."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, func, insert, inspect, select, text, update

from app.core.settings.server import SettingsError
from app.plugins.recording.stores.one_table import join_tables
from app.plugins.recording.stores.tables import SCHEMA, schema_version

Migration = Callable[[Connection], None]
"""Changes the tables and their contents from one version to the next."""

_TRUTHS = (
    "ALTER TABLE inferences ADD COLUMN reason TEXT {collation}",
    "ALTER TABLE inferences ADD COLUMN probability {double}",
    "CREATE INDEX inferences_reason ON inferences (reason, number) WHERE reason IS NOT NULL",
    """CREATE TABLE inference_truths (
        number {number} NOT NULL, revision INTEGER NOT NULL, current BOOLEAN NOT NULL, verdict TEXT NOT NULL,
        complete BOOLEAN NOT NULL, source TEXT NOT NULL, author TEXT NOT NULL, time BIGINT NOT NULL,
        comment TEXT NOT NULL, records TEXT, PRIMARY KEY (number, revision)
    ) {options}""",
)


def _add_truths(connection: Connection) -> None:
    sqlite = {"number": "INTEGER", "double": "DOUBLE", "collation": "", "options": "WITHOUT ROWID"}
    postgresql = {"number": "BIGINT", "double": "DOUBLE PRECISION", "collation": 'COLLATE "C"', "options": ""}
    types = sqlite if connection.dialect.name == "sqlite" else postgresql
    for statement in _TRUTHS:
        connection.execute(text(statement.format(**types)))


_STORED_TYPES = {"int": "number", "float": "number"}
_STEP = 5000


def _move_metadata(connection: Connection) -> None:
    """Move the lists of objects ``key``, ``type`` and ``value`` into a table of their own."""
    is_sqlite = connection.dialect.name == "sqlite"
    number, collation = ("INTEGER", "") if is_sqlite else ("BIGINT", 'COLLATE "C"')
    columns = f"number {number} NOT NULL, entries TEXT {collation} NOT NULL, PRIMARY KEY (number)"
    connection.execute(text(f"CREATE TABLE recordings_metadata ({columns})"))
    rows = text(
        "SELECT number, metadata FROM recordings WHERE number > :last AND metadata <> '[]' ORDER BY number LIMIT :step"
    )
    decode, last = msgspec.json.Decoder(list[dict[str, Any]]).decode, -1
    while found := connection.execute(rows, {"last": last, "step": _STEP}).all():
        entries = [{"number": number, "entries": _entries_json(decode(document))} for number, document in found]
        connection.execute(text("INSERT INTO recordings_metadata VALUES (:number, :entries)"), entries)
        last = found[-1][0]
    connection.execute(text("ALTER TABLE recordings DROP COLUMN metadata"))


def _entries_json(entries: Sequence[Mapping[str, Any]]) -> str:
    lists = ([entry["key"], _STORED_TYPES.get(entry["type"], entry["type"]), entry["value"]] for entry in entries)
    return "[" + ",".join("\n" + msgspec.json.encode(entry).decode() for entry in lists) + "]"


MIGRATIONS: Sequence[Migration] = (_add_truths, join_tables, _move_metadata)
"""The first leads from version 1 to version 2, which 0.2 wrote.

A migration must not import `tables`, which change later.
"""

NEWEST_VERSION = len(MIGRATIONS) + 1
"""The version of the tables of this program."""


def upgrade(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Create the tables, or migrate them to this program's version, in the transaction of `connection`.

    Raise SettingsError when they have a later version, or belong to another program.
    """
    newest = len(migrations) + 1
    if connection.dialect.name == "postgresql":
        # If several servers start at once, one creates the tables and the others wait for it.
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    present = set(inspect(connection).get_table_names())
    if schema_version.name not in present:
        if existing := sorted(present & set(SCHEMA.tables)):
            raise SettingsError(f"The store has a table {existing[0]} already, which is none of recordings")
        SCHEMA.create_all(connection)
        connection.execute(insert(schema_version).values(version=newest))
        return
    version = connection.execute(select(schema_version.c.version)).scalar_one()
    if version > newest:
        message = (
            f"The store was written by a later Charioteer: its tables have version {version}, this one knows {newest}"
        )
        raise SettingsError(message)
    for migration in migrations[version - 1 :]:
        migration(connection)
    if version < newest:
        connection.execute(update(schema_version).values(version=newest))


_LOCK = 0x63686172696F74
