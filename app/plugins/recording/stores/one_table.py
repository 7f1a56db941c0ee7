"""Migrate a store of 0.2, whose truths, metadata and shadow answers have tables of their own, to one table."""

import logging
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from sqlalchemy import Connection, inspect, text

from app.core.settings.files import replacing_file

_logger = logging.getLogger(__name__)

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


def join_tables(connection: Connection) -> None:
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
    shown = time.monotonic()
    with _OlderTruths(connection) as older:
        while first < end:
            found = text("SELECT number FROM inferences WHERE number >= :first ORDER BY number LIMIT 1 OFFSET :step")
            last = connection.execute(found, {"first": first, "step": _STEP}).scalar() or end
            span = {"first": first, "last": last}
            connection.execute(text(_COPY), span)
            _copy_truths(connection, span, older)
            if has_shadow:
                _copy_shadows(connection, span)
            first = last
            if first == end or time.monotonic() - shown >= _PROGRESS_SECONDS:
                shown = time.monotonic()
                done = connection.execute(text("SELECT count(*) FROM recordings")).scalar_one()
                _logger.warning("upgrading the store of recordings: %d of %d", done, count)
        for statement in _FINISH:
            connection.execute(text(statement))


def _copy_truths(connection: Connection, span: Mapping[str, int], older: "_OlderTruths") -> None:
    rows = connection.execute(text(_TRUTHS), span).mappings().all()
    truths: list[Mapping[str, Any]] = []
    for row in rows:
        names = ("verdict", "records", "complete", "source", "comment", "time")
        truth = {name: row[name] for name in names} | {"complete": bool(row["complete"])}
        if row["records"] is not None:
            truth["records"] = msgspec.Raw(row["records"].encode())
        if not row["current"] or row["author"]:
            names = ("id", "revision", "author")
            older.add({name: row[name] for name in names} | {"current": bool(row["current"])} | truth)
        if row["current"]:
            truths.append({"number": row["number"], "document": msgspec.json.encode(truth).decode()})
    if truths:
        connection.execute(text("UPDATE recordings SET truth = :document WHERE number = :number"), truths)


def _copy_shadows(connection: Connection, span: Mapping[str, int]) -> None:
    """Copy the answers of shadow versions. Of several answers to one inference, the newest counts."""
    documents: dict[int, Mapping[str, Any]] = {}
    for row in connection.execute(text(_SHADOWS), span).mappings():
        answer = {name: value for name, value in row.items() if name not in ("number", "id")}
        answer["agreed"] = None if row["agreed"] is None else bool(row["agreed"])
        if row["records"] is not None:
            answer["records"] = msgspec.Raw(row["records"].encode())
        number = row["number"]
        documents[number] = {"number": number, "document": msgspec.json.encode(answer).decode()}
    if documents:
        statement = text("UPDATE recordings SET shadow = :document WHERE number = :number")
        connection.execute(statement, list(documents.values()))


class _OlderTruths:
    """Write the revisions of truths that have no place in the new table, and truths with an author, as JSON lines.

    The file is complete before the transaction ends: a kill in between leaves a file that the next start replaces.
    """

    def __init__(self, connection: Connection) -> None:
        self._path = _path_of_older_truths(connection)
        self._stack = ExitStack()
        self._file: BinaryIO | None = None

    def __enter__(self) -> "_OlderTruths":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
        if self._file is not None and error[0] is None:
            _logger.warning("older truths of recordings were written to %s", self._path)

    def add(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = self._stack.enter_context(replacing_file(self._path))
        self._file.write(msgspec.json.encode(line) + b"\n")


def _path_of_older_truths(connection: Connection) -> Path:
    """Return a path beside an SQLite store. For PostgreSQL, it is in the current folder if that can be written to."""
    if connection.dialect.name == "sqlite":
        file = connection.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one()
        return Path(f"{file}.older-truths.jsonl")
    folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path(tempfile.gettempdir())
    return folder / f"{connection.engine.url.database}.older-truths.jsonl"
