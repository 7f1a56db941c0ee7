"""Create the tables of a store, copy a store of 0.2 into them, or move the metadata of 0.3.0.

A change of `tables` changes the copy too, and needs an upgrade of the stores that this version wrote.
"""

import logging
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, RowMapping, bindparam, func, insert, inspect, select, text, update
from sqlalchemy.schema import CreateTable

from app.core.settings.files import replacing_file
from app.core.settings.server import SettingsError
from app.plugins.recording.stores.rows import encode_entries
from app.plugins.recording.stores.tables import SCHEMA, metadata, recordings, schema_version
from metadata.request import MetadataEntry

_logger = logging.getLogger(__name__)

NEWEST_VERSION = 4
"""The version of the tables of this program."""
_VERSION_OF_0_2 = 2
_VERSION_OF_0_3_0 = 3
_STEP = 5000
"""Rows that are copied between two progress lines at least."""
_PROGRESS_SECONDS = 2.0

_COPY = """INSERT INTO recordings
    SELECT number, id, base_id, request_id, input, datum, protocol, model, version, task_type, started, duration,
    image_digest, image_width, image_height, image_size, image_kept, error, explanation,
    '{"reason":' || coalesce('"' || reason || '"', 'null')
    || ',"probability":' || coalesce(CAST(probability AS TEXT), 'null') || '}',
    message, parameters, records, NULL, NULL
    FROM inferences WHERE number >= :first AND number < :last"""
_METADATA = """SELECT number, metadata FROM inferences
    WHERE number >= :first AND number < :last AND metadata <> '[]'"""
_MOVED = """SELECT number, metadata FROM recordings WHERE number > :last AND metadata <> '[]'
    ORDER BY number LIMIT :step"""
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
)
_TRUTH = ("verdict", "records", "complete", "source", "comment", "time")
_ANSWER = (
    "version", "model", "champion", "time", "agreed", "matched", "missing", "extra", "mean_iou", "score_difference",
    "champion_ms", "shadow_ms", "error", "records",
)  # fmt: skip
_LOCK = 0x63686172696F74
_decode_entries = msgspec.json.Decoder(list[MetadataEntry]).decode


def upgrade(connection: Connection) -> None:
    """Create the tables, or upgrade those of 0.2 to this program's version, in the transaction of `connection`.

    Raise SettingsError when they have another version, or belong to another program.
    """
    if connection.dialect.name == "postgresql":
        # If several servers start at once, one creates the tables and the others wait for it.
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    present = set(inspect(connection).get_table_names())
    if schema_version.name not in present:
        if existing := sorted(present & set(SCHEMA.tables)):
            raise SettingsError(f"The store has a table {existing[0]} already, which is none of recordings")
        SCHEMA.create_all(connection)
        connection.execute(insert(schema_version).values(version=NEWEST_VERSION))
        return
    version = connection.execute(select(schema_version.c.version)).scalar_one()
    if version == NEWEST_VERSION:
        return
    if version > NEWEST_VERSION:
        known = f"its tables have version {version}, this one knows {NEWEST_VERSION}"
        raise SettingsError(f"The store was written by a later Charioteer: {known}")
    if version == _VERSION_OF_0_3_0:
        _move_metadata(connection)
    elif version == _VERSION_OF_0_2:
        _copy_store_of_0_2(connection)
    else:
        raise SettingsError(
            f"Expected a store of 0.2 or later, got tables of version {version}; serve it once with 0.2"
        )
    connection.execute(update(schema_version).values(version=NEWEST_VERSION))


def _copy_store_of_0_2(connection: Connection) -> None:
    """Copy everything into the current tables, and drop the others. Write what has no place there to a file.

    A server of 0.2 that still runs fails from then on, because its table is gone.
    """
    if connection.dialect.name == "postgresql":
        # Wait for the writers of 0.2: what they add after the copy would be lost.
        connection.execute(text("LOCK TABLE inferences IN ACCESS EXCLUSIVE MODE"))
    for table in (recordings, metadata):
        connection.execute(CreateTable(table))
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
        _insert_metadata(connection, connection.execute(text(_METADATA), span).all())
        older += _copy_truths(connection, span)
        if has_shadow:
            # Of several answers to one inference, the newest counts.
            answers = connection.execute(text(_SHADOWS), span).mappings()
            _set_documents(connection, "shadow", {row["number"]: _document(row, _ANSWER, "agreed") for row in answers})
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
    for index in recordings.indexes:
        index.create(connection)


def _move_metadata(connection: Connection) -> None:
    connection.execute(CreateTable(metadata))
    last = -1
    while found := connection.execute(text(_MOVED), {"last": last, "step": _STEP}).all():
        _insert_metadata(connection, found)
        last = found[-1][0]
    connection.execute(text("ALTER TABLE recordings DROP COLUMN metadata"))


def _insert_metadata(connection: Connection, found: Sequence[Any]) -> None:
    entries = [{"number": row[0], "entries": encode_entries(_decode_entries(row[1]))} for row in found]
    if entries:
        connection.execute(insert(metadata), entries)


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
    _set_documents(connection, "truth", current)
    return older


def _document(row: RowMapping, names: Sequence[str], flag: str) -> dict[str, Any]:
    """Return columns of a row by name, with the JSON of `records`, and `flag` as true, false or null."""
    records = None if row["records"] is None else msgspec.Raw(row["records"].encode())
    is_set = None if row[flag] is None else bool(row[flag])
    return {name: row[name] for name in names} | {"records": records, flag: is_set}


def _set_documents(connection: Connection, column: Literal["truth", "shadow"], documents: Mapping[int, object]) -> None:
    statement = update(recordings).where(recordings.c.number == bindparam("key"))
    rows = [{"key": key, "document": msgspec.json.encode(value).decode()} for key, value in documents.items()]
    if rows:
        connection.execute(statement.values({column: bindparam("document")}), rows)


def _path_of_older_truths(connection: Connection) -> Path:
    """Return a path beside an SQLite store. For PostgreSQL, it is in the current folder if that can be written to."""
    if connection.dialect.name == "sqlite":
        file = connection.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one()
        return Path(f"{file}.older-truths.jsonl")
    folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path(tempfile.gettempdir())
    return folder / f"{connection.engine.url.database}.older-truths.jsonl"
