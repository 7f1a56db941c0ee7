"""The tables of a store, the same in SQLite and in PostgreSQL.

`recordings` has one row for each inference. `metadata` has its metadata apart, because conditions on it read all rows,
and these are a quarter as large. `labels` repeats the labels of its answer, for conditions on labels and scores.
`number` grows in the order of recording: the newest rows have the largest.
"""

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, MetaData, Sequence, Table, Text

INDEXED_CHARACTERS = 400
"""Maximum length of a text in an indexed column: a PostgreSQL index entry has at most 2,704 bytes."""

SCHEMA = MetaData()

# In SQLite, a column is an alias of the rowid only if its type is INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

_BY_CODE_POINT = Text().with_variant(Text(collation="C"), "postgresql")

numbers = Sequence("inference_numbers", metadata=SCHEMA)
"""The sequence of numbers in PostgreSQL; in SQLite the writer increments the largest number."""

schema_version = Table("inference_schema", SCHEMA, Column("version", Integer, nullable=False))
"""One row with the version of these tables."""

recordings = Table(
    "recordings",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("base_id", Text),
    Column("request_id", Text, nullable=False),
    Column("input", Integer, nullable=False),
    Column("datum", Integer, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("task_type", Text, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("duration", BigInteger, nullable=False),
    Column("image_digest", Text),
    Column("image_width", Integer),
    Column("image_height", Integer),
    Column("image_size", BigInteger),
    Column("image_kept", Boolean, nullable=False),
    Column("error", Text),
    Column("explanation", Boolean, nullable=False),
    Column("selection", Text, nullable=False),
    # Long texts come last: in a scan of many rows, columns after a long text are slow to read.
    Column("message", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("records", Text),
    Column("truth", Text),
    Column("shadow", Text),
)
"""One row for each `RecordedInference`, with the same names and units.

`selection` (an object `reason`, `probability`), `parameters` (an object), `records` (a list of objects), `truth` (a
`Truth`) and `shadow` (the answer of a shadow version) are JSON without spaces.
"""

metadata = Table(
    "recordings_metadata",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("entries", _BY_CODE_POINT, nullable=False),
)
"""One row for each inference with metadata.

`entries` is a JSON list of lists ``["camera","str","north"]``, each on a line of its own. The type of integers and
floats is ``number``.
"""

labels = Table(
    "inference_labels",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("label", _BY_CODE_POINT, primary_key=True),
    Column("score", Double),
    sqlite_with_rowid=False,
)
"""One row for each predicted label with its best score; None for tasks without scores.

For an inference with very many labels, only those with the best scores have rows. Labels are truncated to
`INDEXED_CHARACTERS`.
"""


def _index_present(name: str, value: Column[Any], *columns: Column[Any]) -> None:
    """Define an index over `columns` of the rows that have a `value`."""
    present = value.is_not(None)
    Index(name, *columns, sqlite_where=present, postgresql_where=present)


_columns = recordings.c
Index("recordings_id", _columns.id, unique=True)
Index("recordings_request_id", _columns.request_id)
Index("recordings_started", _columns.started, _columns.number)
_index_present("recordings_image", _columns.image_digest, _columns.image_digest, _columns.started)
_index_present("recordings_truth", _columns.truth, _columns.number)
_index_present("recordings_shadow", _columns.shadow, _columns.number)
Index("inference_labels_label", labels.c.label, labels.c.number, labels.c.score)
