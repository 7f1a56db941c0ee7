"""Read recordings: pages, all matches in batches, one inference by its id, and its image."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Executable, select
from sqlalchemy.engine import Row

from app.recording.dsn import StoreDsn
from app.recording.images import DIGEST, image_path
from app.recording.inference import RecordedImage, RecordedInference
from app.recording.migrations import MIGRATIONS
from app.recording.query.condition_sql import Dialect
from app.recording.query.connection import connect
from app.recording.query.filters import query_filters
from app.recording.query.plan import newest_numbers
from app.recording.query.query import InferenceQuery
from app.recording.tables import INDEXED_CHARACTERS, inferences, schema_version
from metadata.entry import MetadataEntry
from tasks.inference.error import ErrorKind, InferenceError

__all__ = ("RecordingReader", "ResultPage")

_FETCH_ROWS = 500
"""Number of rows in one fetch."""

_QUERY_NUMBERS = 20_000
"""Number of matches in one query when all matches are read."""


class ResultPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of matches, newest first.

    Attributes:
        inferences: in reverse order of recording.
        next: cursor of the next page, None for the last page.
    """

    inferences: Sequence[RecordedInference]
    next: int | None = None


class RecordingReader:
    """A read-only view of one store. All methods block, and may be called from any thread.

    Args:
        dsn: the address of the store.
        images: the folder of stored images, if there is one.
        seconds: timeout of one query; None for no timeout.

    Raises:
        SettingsError: when the driver of the store is not installed.
        InferenceError: when the store cannot be read, or is not a store of recordings.
    """

    def __init__(self, dsn: StoreDsn, images: Path | None = None, seconds: float | None = None) -> None:
        self._display_name = dsn.display_name
        self._dialect: Dialect = dsn.dialect
        if dsn.dialect == "sqlite" and not dsn.file.is_file():
            raise _no_store(f"There are no recordings at {dsn.display_name}: there is no such file")
        self._connection = connect(dsn, seconds)
        self._images = images
        self._checked = False

    def page(self, query: InferenceQuery, limit: int, after: int | None = None) -> ResultPage:
        """Return the newest matches, or those that follow the cursor `after`.

        Raises:
            InferenceError: as `Connection.rows`, and for conditions that SQL cannot express.
        """
        numbers = newest_numbers(self._run, query_filters(query, self._dialect), after, limit + 1)
        matches = self._fetch(numbers[:limit])
        return ResultPage(inferences=matches, next=numbers[limit - 1] if len(numbers) > limit else None)

    def batches(self, query: InferenceQuery, limit: int | None = None) -> Iterator[Sequence[RecordedInference]]:
        """Yield all matches, or the newest `limit`, newest first, with one batch in memory.

        Inferences that are recorded or deleted meanwhile may be missing. None appears twice.

        Raises:
            InferenceError: as `page`.
        """
        filters, after, remaining = query_filters(query, self._dialect), None, limit
        while remaining is None or remaining > 0:
            batch_size = _QUERY_NUMBERS if remaining is None else min(_QUERY_NUMBERS, remaining)
            numbers = newest_numbers(self._run, filters, after, batch_size)
            for start in range(0, len(numbers), _FETCH_ROWS):
                yield self._fetch(numbers[start : start + _FETCH_ROWS])
            if len(numbers) < batch_size:
                return
            after = numbers[-1]
            remaining = None if remaining is None else remaining - len(numbers)

    def get(self, inference_id: str) -> RecordedInference | None:
        """Return the inference with this id, or None if there is none.

        Raises:
            InferenceError: as `Connection.rows`.
        """
        if "\0" in inference_id:
            return None
        rows = self._run(select(inferences).where(inferences.c.id == inference_id[:INDEXED_CHARACTERS]))
        return _inference(rows[0]) if rows else None

    def image(self, inference: RecordedInference) -> bytes | None:
        """Return the file that the client sent, or None if it was not stored or was deleted."""
        image = inference.image
        if image is None or not image.kept or self._images is None or not DIGEST.fullmatch(image.digest):
            return None
        try:
            return image_path(self._images, image.digest).read_bytes()
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Close the connection to the store."""
        self._connection.close()

    def _fetch(self, numbers: Sequence[int]) -> Sequence[RecordedInference]:
        matches: list[RecordedInference] = []
        for start in range(0, len(numbers), _FETCH_ROWS):
            chunk = numbers[start : start + _FETCH_ROWS]
            statement = select(inferences).where(inferences.c.number.in_(chunk)).order_by(inferences.c.number.desc())
            matches += map(_inference, self._run(statement))
        return matches

    def _run(self, statement: Executable) -> Sequence[Row[Any]]:
        if not self._checked:
            self._check()
        return self._connection.rows(statement)

    def _check(self) -> None:
        """Check that the store has the version of this program.

        Raises:
            InferenceError: when it has not.
        """
        version = int(self._connection.rows(select(schema_version.c.version))[0][0])
        newest = len(MIGRATIONS) + 1
        if version > newest:
            raise _no_store(f"The recordings were written by a later Charioteer: version {version}, not {newest}")
        if version < newest:
            raise _no_store(
                f"The recordings are of an older version, {version}: serve once with --record to bring them to {newest}"
            )
        self._checked = True


def _no_store(message: str) -> InferenceError:
    return InferenceError(ErrorKind.MODEL_NOT_READY, message)


_metadata = msgspec.json.Decoder(list[MetadataEntry])
_records = msgspec.json.Decoder(list[dict[str, object]])
_parameters = msgspec.json.Decoder(dict[str, object])


def _inference(row: Row[Any]) -> RecordedInference:
    image = None
    if row.image_digest is not None:
        image = RecordedImage(
            digest=row.image_digest,
            width=row.image_width or 0,
            height=row.image_height or 0,
            size=row.image_size or 0,
            kept=bool(row.image_kept),
        )
    return RecordedInference(
        id=row.id,
        base_id=row.base_id,
        request_id=row.request_id,
        input=row.input,
        datum=row.datum,
        protocol=row.protocol,
        model=row.model,
        version=row.version,
        task_type=row.task_type,
        started=row.started,
        duration=row.duration,
        parameters=_parameters.decode(row.parameters),
        metadata=_metadata.decode(row.metadata),
        records=None if row.records is None else _records.decode(row.records),
        image=image,
        error=row.error,
        message=row.message,
        explanation=bool(row.explanation),
    )
