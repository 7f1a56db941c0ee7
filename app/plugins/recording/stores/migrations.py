"""Migrate the tables of a store to the current version.

A migration must not import `tables`, which change later.
"""

import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, RowMapping, func, insert, inspect, select, text, update

from app.core.settings.files import replacing_file
from app.core.settings.server import SettingsError
from app.plugins.recording.stores.tables import SCHEMA, schema_version

_logger = logging.getLogger(__name__)

Migration = Callable[[Connection], None]
"""Changes the tables and their contents from one version to the next."""

_ADD_TRUTHS = (
    "ALTER TABLE inferences ADD COLUMN reason TEXT {collation}",
    "ALTER TABLE inferences ADD COLUMN probability {double}",
    "CREATE INDEX inferences_reason ON inferences (reason, number) WHERE reason IS NOT NULL",
    """CREATE TABLE inference_truths (
        number {number} NOT NULL, revision INTEGER NOT NULL, current BOOLEAN NOT NULL, verdict TEXT NOT NULL,
        complete BOOLEAN NOT NULL, source TEXT NOT NULL, author TEXT NOT NULL, time BIGINT NOT NULL,
        comment TEXT NOT NULL, records TEXT, PRIMARY KEY (number, revision)
    ) {options}""",
)
_STEP = 5000
"""Rows that are copied between two progress lines at least."""
_PROGRESS_SECONDS = 2.0

_CREATE = """CREATE TABLE recordings (
    number {number} NOT NULL, id TEXT NOT NULL, base_id TEXT, request_id TEXT NOT NULL, input INTEGER NOT NULL,
    datum INTEGER NOT NULL, protocol TEXT NOT NULL, model TEXT NOT NULL, version TEXT NOT NULL,
    task_type TEXT NOT NULL, started BIGINT NOT NULL, duration BIGINT NOT NULL, image_digest TEXT,
    image_width INTEGER, image_height INTEGER, image_size BIGINT, image_kept BOOLEAN NOT NULL, error TEXT,
    explanation BOOLEAN NOT NULL, selection TEXT NOT NULL, message TEXT NOT NULL, parameters TEXT NOT NULL,
    metadata TEXT NOT NULL, records TEXT, truth TEXT, shadow TEXT, PRIMARY KEY (number)
)"""
_COPY = """INSERT INTO recordings
    SELECT number, id, base_id, request_id, input, datum, protocol, model, version, task_type, started, duration,
    image_digest, image_width, image_height, image_size, image_kept, error, explanation,
    '{"reason":' || coalesce('"' || reason || '"', 'null')
    || ',"probability":' || coalesce(CAST(probability AS TEXT), 'null') || '}',
    message, parameters, metadata, records, NULL, NULL
    FROM inferences WHERE number >= :first AND number < :last"""
_TRUTHS = """SELECT inferences.id, inference_truths.* FROM inference_truths JOIN inferences USING (number)
    WHERE number >= :first AND number < :last ORDER BY number, revision"""
_SHADOWS = """SELECT inferences.number, shadow_answers.* FROM shadow_answers JOIN inferences USING (id)
    WHERE number >= :first AND number < :last ORDER BY time"""
_FINISH = (
    "DROP TABLE inference_truths",
    "DROP TABLE inference_metadata",
    "DROP TABLE IF EXISTS shadow_answers",
    "DROP TABLE inferences",
    "ALTER TABLE inference_labels DROP COLUMN count",
    "CREATE UNIQUE INDEX recordings_id ON recordings (id)",
    "CREATE INDEX recordings_request_id ON recordings (request_id)",
    "CREATE INDEX recordings_started ON recordings (started, number)",
    "CREATE INDEX recordings_image ON recordings (image_digest, started) WHERE image_digest IS NOT NULL",
    "CREATE INDEX recordings_truth ON recordings (number) WHERE truth IS NOT NULL",
    "CREATE INDEX recordings_shadow ON recordings (number) WHERE shadow IS NOT NULL",
)
_SET_TRUTH = "UPDATE recordings SET truth = :document WHERE number = :number"
_SET_SHADOW = "UPDATE recordings SET shadow = :document WHERE number = :number"
_TRUTH = ("verdict", "records", "complete", "source", "comment", "time")
_ANSWER = (
    "version", "model", "champion", "time", "agreed", "matched", "missing", "extra", "mean_iou", "score_difference",
    "champion_ms", "shadow_ms", "error", "records",
)  # fmt: skip
_STORED_TYPES = {"int": "number", "float": "number"}
_LOCK = 0x63686172696F74


def _add_truths(connection: Connection) -> None:
    sqlite = {"number": "INTEGER", "double": "DOUBLE", "collation": "", "options": "WITHOUT ROWID"}
    postgresql = {"number": "BIGINT", "double": "DOUBLE PRECISION", "collation": 'COLLATE "C"', "options": ""}
    types = sqlite if connection.dialect.name == "sqlite" else postgresql
    for statement in _ADD_TRUTHS:
        connection.execute(text(statement.format(**types)))


def _join_tables(connection: Connection) -> None:
    """Copy everything into the table `recordings`, and drop the others. Write what has no place there to a file.

    A server of 0.2 that still runs fails from then on, because its table is gone.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    if not is_sqlite:
        # Wait for the writers of 0.2: what they add after the copy would be lost.
        connection.execute(text("LOCK TABLE inferences IN ACCESS EXCLUSIVE MODE"))
    connection.execute(text(_CREATE.format(number="INTEGER" if is_sqlite else "BIGINT")))
    has_shadow = inspect(connection).has_table("shadow_answers")
    count, first, end = connection.execute(
        text("SELECT count(*), coalesce(min(number), 0), coalesce(max(number), -1) + 1 FROM inferences")
    ).one()
    found = text("SELECT number FROM inferences WHERE number >= :first ORDER BY number LIMIT 1 OFFSET :step")
    older: list[Mapping[str, Any]] = []
    done, shown = 0, time.monotonic()
    while first < end:
        span = {"first": first, "last": connection.execute(found, {"first": first, "step": _STEP}).scalar() or end}
        done += connection.execute(text(_COPY), span).rowcount
        older += _copy_truths(connection, span)
        if has_shadow:
            # Of several answers to one inference, the newest counts.
            answers = connection.execute(text(_SHADOWS), span).mappings()
            _set_documents(
                connection, _SET_SHADOW, {row["number"]: _document(row, _ANSWER, "agreed") for row in answers}
            )
        first = span["last"]
        if first == end or time.monotonic() - shown >= _PROGRESS_SECONDS:
            shown = time.monotonic()
            _logger.warning("upgrading the store of recordings: %d of %d", done, count)
    if older:
        # The file is complete before the transaction ends: after a kill in between, the next start replaces it.
        path = _path_of_older_truths(connection)
        with replacing_file(path) as file:
            file.write(msgspec.json.Encoder().encode_lines(older))
        _logger.warning("older truths of recordings were written to %s", path)
    for statement in _FINISH:
        connection.execute(text(statement))


def _copy_truths(connection: Connection, span: Mapping[str, int]) -> Sequence[Mapping[str, Any]]:
    """Copy the current truths. Return the other revisions, and truths with an author."""
    current: dict[int, Mapping[str, Any]] = {}
    older: list[Mapping[str, Any]] = []
    for row in connection.execute(text(_TRUTHS), span).mappings():
        truth = _document(row, _TRUTH, "complete")
        if row["current"]:
            current[row["number"]] = truth
        if not row["current"] or row["author"]:
            names = ("id", "revision", "author")
            older.append({name: row[name] for name in names} | {"current": bool(row["current"])} | truth)
    _set_documents(connection, _SET_TRUTH, current)
    return older


def _document(row: RowMapping, names: Sequence[str], flag: str) -> dict[str, Any]:
    """Return columns of a row by name, with the JSON of `records`, and `flag` as true, false or null."""
    records = None if row["records"] is None else msgspec.Raw(row["records"].encode())
    is_set = None if row[flag] is None else bool(row[flag])
    return {name: row[name] for name in names} | {"records": records, flag: is_set}


def _set_documents(connection: Connection, statement: str, documents: Mapping[int, object]) -> None:
    rows = [{"number": key, "document": msgspec.json.encode(value).decode()} for key, value in documents.items()]
    if rows:
        connection.execute(text(statement), rows)


def _path_of_older_truths(connection: Connection) -> Path:
    """Return a path beside an SQLite store. For PostgreSQL, it is in the current folder if that can be written to."""
    if connection.dialect.name == "sqlite":
        file = connection.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one()
        return Path(f"{file}.older-truths.jsonl")
    folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path(tempfile.gettempdir())
    return folder / f"{connection.engine.url.database}.older-truths.jsonl"


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


MIGRATIONS: Sequence[Migration] = (_add_truths, _join_tables, _move_metadata)
"""The first leads from version 1 to version 2, which 0.2 wrote."""

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
