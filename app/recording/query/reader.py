"""Read recordings: pages, all matches in batches, one inference by its id, its image, and results of SQL."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, select
from sqlalchemy.engine import RowMapping

from app.recording.images import DIGEST, image_path
from app.recording.inference import RecordedImage, RecordedInference
from app.recording.query.connection import QueryRunner
from app.recording.query.filters import query_filters
from app.recording.query.search import newest_numbers
from app.recording.query.sql import SqlResult, run_sql
from app.recording.stores.dsn import StoreDsn
from app.recording.stores.migrations import MIGRATIONS
from app.recording.stores.tables import INDEXED_CHARACTERS, inferences, schema_version
from app.settings.inference_query import InferenceQuery
from metadata.entry import MetadataEntry
from tasks.inference.error import ErrorKind, InferenceError

ResultT = TypeVar("ResultT")

_BATCH_SIZE = 500


class ResultPage(NamedTuple):
    """A page of matches, newest first, and the cursor of the next page; None for the last page."""

    inferences: Sequence[RecordedInference]
    next: int | None


class RecordingReader:
    """A read-only view of one store. All methods block, and may be called from any thread.

    Args:
        dsn: the address of the store.
        images: the folder of stored images, if there is one.
        seconds: timeout of one query; None for no timeout.

    Raises:
        SettingsError: when the driver of the store is not installed.
        InferenceError: when the store cannot be read, or is not a store of recordings. So do the methods.
    """

    def __init__(self, dsn: StoreDsn, images: Path | None = None, seconds: float | None = None) -> None:
        if dsn.dialect == "sqlite" and not dsn.file.is_file():
            message = f"There are no recordings at {dsn.display_name}: there is no such file"
            raise InferenceError(ErrorKind.MODEL_NOT_READY, message)
        self._runner = QueryRunner(dsn, seconds)
        self._images = images
        self._checked = False

    def page(self, query: InferenceQuery, limit: int, after: int | None = None) -> ResultPage:
        """Return the newest matches, or those that follow the cursor `after`.

        Raises:
            InferenceError: also for an invalid filter, with its name.
        """
        filters = query_filters(query)
        numbers = self._run(lambda connection: newest_numbers(connection, filters, after, limit + 1))
        matches = self._fetch(inferences.c.number, numbers[:limit])
        return ResultPage(matches, numbers[limit - 1] if len(numbers) > limit else None)

    def batches(self, query: InferenceQuery, limit: int | None = None) -> Iterator[Sequence[RecordedInference]]:
        """Yield all matches, or the newest `limit`, newest first. One batch is in memory.

        Inferences that are deleted meanwhile may be missing.

        Raises:
            InferenceError: as `page`.
        """
        filters = query_filters(query)
        numbers = self._run(lambda connection: newest_numbers(connection, filters, limit=limit))
        yield from self._batches(inferences.c.number, numbers)

    def batches_of(self, ids: Sequence[str]) -> Iterator[Sequence[RecordedInference]]:
        """Yield the inferences with these ids in batches, in the order of the ids except within a batch."""
        yield from self._batches(inferences.c.id, list(dict.fromkeys(ids)))

    def get(self, inference_id: str) -> RecordedInference | None:
        """Return the inference with this id, or None if there is none."""
        found = self._fetch(inferences.c.id, [inference_id[:INDEXED_CHARACTERS]]) if "\0" not in inference_id else ()
        return found[0] if found else None

    def image(self, inference: RecordedInference) -> bytes | None:
        """Return the file that the client sent, or None if it was not stored or was deleted."""
        image = inference.image
        if image is None or not image.kept or self._images is None or not DIGEST.fullmatch(image.digest):
            return None
        try:
            return image_path(self._images, image.digest).read_bytes()
        except FileNotFoundError:
            return None

    def sql(self, sql: str, limit: int | None = None) -> SqlResult:
        """Run a SELECT of the user, see `app.recording.query.sql`."""
        return self._run(lambda connection: run_sql(connection, sql, limit))

    def _batches(self, column: ColumnElement[Any], values: Sequence[Any]) -> Iterator[Sequence[RecordedInference]]:
        for start in range(0, len(values), _BATCH_SIZE):
            yield self._fetch(column, values[start : start + _BATCH_SIZE])

    def _fetch(self, column: ColumnElement[Any], values: Sequence[Any]) -> Sequence[RecordedInference]:
        statement = select(inferences).where(column.in_(values)).order_by(inferences.c.number.desc())
        return [_inference(row) for row in self._run(lambda connection: connection.execute(statement).mappings().all())]

    def _run(self, query: Callable[[Connection], ResultT]) -> ResultT:
        if not self._checked:
            self._runner(_check_version)
            self._checked = True
        return self._runner(query)


def _check_version(connection: Connection) -> None:
    version, newest = connection.execute(select(schema_version.c.version)).scalar_one(), len(MIGRATIONS) + 1
    if version != newest:
        reason = "a later Charioteer wrote them" if version > newest else "serve once with --record to upgrade them"
        message = f"The recordings have version {version}, this Charioteer reads {newest}: {reason}"
        raise InferenceError(ErrorKind.MODEL_NOT_READY, message)


_DECODERS = {
    "metadata": msgspec.json.Decoder(list[MetadataEntry]),
    "records": msgspec.json.Decoder(list[dict[str, object]]),
    "parameters": msgspec.json.Decoder(dict[str, object]),
}


def _inference(row: RowMapping) -> RecordedInference:
    values = {name: row[name] for name in RecordedInference.__struct_fields__ if name != "image"}
    for name, decoder in _DECODERS.items():
        values[name] = None if values[name] is None else decoder.decode(values[name])
    image = {name: row[f"image_{name}"] for name in RecordedImage.__struct_fields__}
    return RecordedInference(**values, image=None if image["digest"] is None else RecordedImage(**image))
