"""The table of shadow answers in a store of recordings, one row for each sample."""

import logging
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    delete,
    insert,
    inspect,
    select,
)

from app.core.settings.server import SettingsError
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.store import Store, StoreError

_logger = logging.getLogger(__name__)

_BATCH_SIZE = 64
_MAX_DELETED = 1000
"""A longer transaction would delay the recording of inferences, for which clients wait."""
_MICROSECONDS = 1_000_000

shadow_answers = Table(
    "shadow_answers",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("champion", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("agreed", Boolean),
    Column("matched", Integer),
    Column("missing", Integer),
    Column("extra", Integer),
    Column("mean_iou", Double),
    Column("score_difference", Double),
    Column("champion_ms", Double),
    Column("shadow_ms", Double),
    Column("error", Text),
    Column("records", Text),
)
Index("shadow_answers_time", shadow_answers.c.time)


class ShadowRow(msgspec.Struct, frozen=True, kw_only=True):
    """How the answer of a shadow version agrees with the champion's for one sample."""

    id: str  # the id of the champion's inference, `RecordedInference.id`
    version: str  # the shadow version
    model: str  # the name of both
    champion: str  # the version that the client got
    time: int  # in microseconds since 1970 (UTC)
    agreed: bool | None = None  # whether labels are equal and every object has a partner; None after an error
    # Objects with a partner of the same label at an IoU of at least 0.5; None without objects.
    matched: int | None = None
    missing: int | None = None  # objects of the champion without a partner
    extra: int | None = None  # objects of the shadow version without a partner
    mean_iou: float | None = None  # of the partners
    score_difference: float | None = None  # the largest difference between the scores of partners, or of the best class
    champion_ms: float | None = None  # milliseconds of the champion's model for the request
    shadow_ms: float | None = None  # milliseconds of the shadow version's model for the request
    error: str | None = None  # why it did not answer
    records: str | None = None  # its answer as JSON


class ShadowWriter:
    """Write rows in batches. One thread uses it.

    Args:
        store: the store, not yet opened.
        keep: seconds after which rows are deleted; None for never.
    """

    def __init__(self, store: Store, keep: float | None) -> None:
        self._store, self._keep, self._is_open = store, keep, False
        self._rows: list[ShadowRow] = []

    def add(self, row: ShadowRow) -> None:
        """Write the row with the next batch."""
        self._rows.append(row)
        if len(self._rows) >= _BATCH_SIZE:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait. If that fails, log the reason and drop them."""
        rows, self._rows = self._rows, []
        if not rows:
            return

        def write(connection: Connection) -> None:
            connection.execute(insert(shadow_answers), [msgspec.structs.asdict(row) for row in rows])
            if self._keep is not None:
                oldest = int((time.time() - self._keep) * _MICROSECONDS)
                expired = select(shadow_answers.c.id).where(shadow_answers.c.time < oldest).limit(_MAX_DELETED)
                connection.execute(delete(shadow_answers).where(shadow_answers.c.id.in_(expired)))

        try:
            if not self._is_open:
                self._store.open()
                self._store.transaction(lambda connection: shadow_answers.create(connection, checkfirst=True))
                self._is_open = True
            self._store.transaction(write)
        except (SettingsError, StoreError) as error:
            _logger.warning("%d shadow answers could not be recorded: %s", len(rows), error)

    def close(self) -> None:
        """Write the rows that wait, and close the store."""
        self.flush()
        self._store.close()


def read_rows(
    reader: RecordingReader, model: str | None = None, version: str | None = None, limit: int | None = None
) -> Sequence[ShadowRow]:
    """Return the rows of a store, or the newest `limit`, newest first; of one model and version if they are given.

    Raise InferenceError when the store cannot be read.
    """
    statement = select(shadow_answers).order_by(shadow_answers.c.time.desc(), shadow_answers.c.id).limit(limit)
    for column, value in ((shadow_answers.c.model, model), (shadow_answers.c.version, version)):
        statement = statement if value is None else statement.where(column == value)

    def read(connection: Connection) -> Sequence[Any]:
        if not inspect(connection).has_table(shadow_answers.name):
            return ()
        return connection.execute(statement).mappings().all()

    return [ShadowRow(**row) for row in reader.run(read)]
