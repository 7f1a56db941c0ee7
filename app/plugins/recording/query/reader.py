"""Read recordings in a store or an export: pages, all matches in batches, one inference, its image."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, select
from sqlalchemy.engine import RowMapping

from app.core.engine.error_text import needs_extra
from app.core.settings.server import SettingsError
from app.plugins.recording.images import read_recorded_image
from app.plugins.recording.inference import (
    InferencePage,
    RecordedInference,
    Selection,
    Truth,
    check_numbers,
    image_from_columns,
)
from app.plugins.recording.inference_query import NO_TRIAL, InferenceQuery
from app.plugins.recording.query.connection import QueryRunner
from app.plugins.recording.query.filters import matching_numbers
from app.plugins.recording.stores.migrations import NEWEST_VERSION
from app.plugins.recording.stores.rows import decode_entries, to_rows
from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import ResultT, StoreDsn, StoreError, parse_dsn
from app.plugins.recording.stores.tables import INDEXED_CHARACTERS, metadata, recordings, schema_version
from metadata.request import MetadataEntry
from tasks.inference.error import ErrorKind, InferenceError, quote_value

T = TypeVar("T")

_BATCH_SIZE = 500
_READ_ROWS = 10_000
_PARTS = "part-*.parquet"


class RecordingReader:
    """A read-only view of one store. All methods block, and may be called from any thread.

    Raise SettingsError when the driver of the store is not installed. Raise InferenceError when the store cannot be
    read, or is not a store of recordings. So do the methods.

    Args:
        dsn: the address of the store.
        images: the folder of stored images, if there is one.
        seconds: timeout of one query; None for no timeout.
    """

    def __init__(self, dsn: StoreDsn, images: Path | None = None, seconds: float | None = None) -> None:
        if dsn.dialect == "sqlite" and not dsn.file.is_file():
            reason = "it is a folder" if dsn.file.is_dir() else "there is no such file"
            message = f"There are no recordings at {dsn.display_name}: {reason}"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, message)
        self._runner = QueryRunner(dsn, seconds)
        self.dialect = dsn.dialect
        self._images = images
        self._checked = False

    def page(self, query: InferenceQuery, limit: int, after: int | None = None) -> InferencePage:
        """Return the newest matches, or those that follow the cursor `after`.

        Raise InferenceError also for an invalid filter, with its name.
        """
        numbers = self._numbers(query, after, limit + 1)
        matches = self.find(recordings.c.number.in_(numbers[:limit]))
        return InferencePage(matches, str(numbers[limit - 1]) if len(numbers) > limit else None)

    def batches(self, query: InferenceQuery, limit: int | None = None) -> Iterator[Sequence[RecordedInference]]:
        """Yield all matches, or the newest `limit`, newest first. One batch is in memory.

        Inferences that are deleted meanwhile may be missing. Raise InferenceError as `page`.
        """
        yield from self.find_each(recordings.c.number, self._numbers(query, limit=limit))

    def get(self, inference_id: str) -> RecordedInference:
        """Return the inference with this id. Raise MODEL_NOT_FOUND if there is none."""
        is_id = recordings.c.id == inference_id[:INDEXED_CHARACTERS]
        found = self.find(is_id) if inference_id.isprintable() else ()
        if not found:
            raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"There is no inference {quote_value(inference_id)}")
        return found[0]

    def image(self, inference: RecordedInference) -> bytes | None:
        """Return the file that the client sent, or None if it was not stored or was deleted."""
        return read_recorded_image(self._images, inference.image)

    def _numbers(self, query: InferenceQuery, before: int | None = None, limit: int | None = None) -> Sequence[int]:
        statement = matching_numbers(query, self.dialect, before, limit)
        return self.run(lambda connection: connection.execute(statement).scalars().all())

    def find(self, condition: ColumnElement[bool]) -> Sequence[RecordedInference]:
        """Return the inferences that meet a condition on the columns of `tables.recordings`, the newest first."""
        return [inference_of(row) for row in self.rows(condition)]

    def find_each(self, column: ColumnElement[T], values: Sequence[T]) -> Iterator[Sequence[RecordedInference]]:
        """Yield the inferences that have one of the values in a column of `tables.recordings`, in batches of values."""
        for start in range(0, len(values), _BATCH_SIZE):
            yield self.find(column.in_(values[start : start + _BATCH_SIZE]))

    def rows(self, condition: ColumnElement[bool], limit: int | None = None) -> Sequence[RowMapping]:
        """Return the rows of `tables.recordings`, or the newest `limit`, that meet a condition, the newest first."""
        number = recordings.c.number
        statement = select(recordings, metadata.c.entries).outerjoin(metadata, metadata.c.number == number)
        statement = statement.where(condition).order_by(number.desc()).limit(limit)
        return self.run(lambda connection: connection.execute(statement).mappings().all())

    def metadata(self, condition: ColumnElement[bool]) -> Iterator[tuple[int, Sequence[MetadataEntry]]]:
        """Yield number and metadata of the inferences that meet a condition on `tables.metadata`, newest first."""
        number = metadata.c.number
        statement = select(metadata).where(condition).order_by(number.desc()).limit(_READ_ROWS)
        while rows := self.run(lambda connection, read=statement: connection.execute(read).all()):
            yield from ((row[0], decode_entries(row[1])) for row in rows)
            statement = statement.where(number < rows[-1][0])

    def run(self, query: Callable[[Connection], ResultT]) -> ResultT:
        """Return the result of a query with a read-only connection."""
        if not self._checked:
            self._runner(_check_version)
            self._checked = True
        return self._runner(query)


def open_recordings(source: str, images: Path | None = None) -> RecordingReader:
    """Open a store, a file that ``charioteer inferences --to`` wrote as JSONL or Parquet, or a folder of such Parquet.

    Raise SettingsError when the address is invalid, or the file is not such an export. Raise InferenceError when the
    store cannot be read.

    Args:
        source: the address of a store, a file that ends in ``.jsonl``, ``.ndjson`` or ``.parquet``, or a folder as
            `is_folder_of_parts` describes it.
        images: the folder of stored images, if there is one.
    """
    file = Path(source)
    read = _READERS.get(file.suffix.lower())
    if is_folder_of_parts(source):
        batches = map(_read_parquet, sorted(file.glob(_PARTS)))
    elif read is None or not file.is_file():
        return RecordingReader(parse_dsn(source), images)
    else:
        # An export begins with the newest inference, a store with the oldest. Exports may overlap in a joined file.
        batches = iter([list({inference.id: inference for inference in reversed(read(file))}.values())])
    folder = tempfile.mkdtemp(prefix="charioteer-")
    store = SqliteStore(Path(folder) / "recordings.db")
    store.open()
    reader = RecordingReader(parse_dsn(f"{folder}/recordings.db"), images)
    weakref.finalize(reader, shutil.rmtree, folder, ignore_errors=True)
    try:
        for inferences in batches:
            for start in range(0, len(inferences), _BATCH_SIZE):
                store.write([to_rows(inference) for inference in inferences[start : start + _BATCH_SIZE]])
    except StoreError as error:
        raise SettingsError(f"{file} cannot be searched: {error}") from None
    finally:
        store.close()
    return reader


def default_reason(source: str) -> str | None:
    """Return the filter that leaves out the trials in a store; None for an export, whose inferences were chosen."""
    return None if is_folder_of_parts(source) or Path(source).suffix.lower() in _READERS else NO_TRIAL


def is_folder_of_parts(source: str) -> bool:
    """Return whether `source` is a folder of inferences in files ``part-*.parquet``, the oldest first."""
    return Path(source).is_dir() and next(Path(source).glob(_PARTS), None) is not None


def _check_version(connection: Connection) -> None:
    version = connection.execute(select(schema_version.c.version)).scalar_one()
    if version != NEWEST_VERSION:
        is_later = version > NEWEST_VERSION
        reason = "a later Charioteer wrote them" if is_later else "serve once with --record to upgrade them"
        message = f"The recordings have version {version}, this Charioteer reads {NEWEST_VERSION}: {reason}"
        raise InferenceError(ErrorKind.MODEL_NOT_READY, message)


_DECODERS: Mapping[str, msgspec.json.Decoder[Any]] = {
    "records": msgspec.json.Decoder(list[dict[str, object]]),
    "parameters": msgspec.json.Decoder(dict[str, object]),
    "selection": msgspec.json.Decoder(Selection),
    "truth": msgspec.json.Decoder(Truth),
}


def inference_of(row: RowMapping) -> RecordedInference:
    """Return the inference of a row of `RecordingReader.rows`."""
    values = {name: row[name] for name in RecordedInference.__struct_fields__ if name in row}
    values["metadata"] = decode_entries(row["entries"])
    for name, decoder in _DECODERS.items():
        values[name] = None if row[name] is None else decoder.decode(row[name])
    selection: Selection = values.pop("selection")
    return RecordedInference(
        **values, image=image_from_columns(row), reason=selection.reason, probability=selection.probability
    )


def _read_lines(file: Path) -> Sequence[RecordedInference]:
    inferences: list[RecordedInference] = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    inferences.append(check_numbers(msgspec.json.decode(line, type=RecordedInference)))
            except (RecursionError, ValueError) as error:
                raise SettingsError(
                    f"{file}: line {number}: Expected one recorded inference on each line: {error}"
                ) from None
    return inferences


def _read_parquet(file: Path) -> Sequence[RecordedInference]:
    with needs_extra("Parquet", "parquet", SettingsError):
        from app.plugins.recording.export.parquet import read_parquet
    return read_parquet(file)


def _reject(file: Path) -> NoReturn:
    message = "COCO is for annotation tools and does not hold everything; export .jsonl or .parquet"
    raise SettingsError(f"{file}: {message}")


_READERS = {".jsonl": _read_lines, ".ndjson": _read_lines, ".parquet": _read_parquet, ".json": _reject}
