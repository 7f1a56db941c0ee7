"""The tables of a store, the same in SQLite and in PostgreSQL.

`inferences` contains every inference completely. `metadata` and `labels` repeat the parts that filters search, and
`truths` holds what people say of it later. `number` joins the rows of all these tables. It grows in the order of
recording: the newest rows have the largest.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    Sequence,
    SmallInteger,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB

INDEXED_CHARACTERS = 400
"""Maximum length of a text in an indexed column: a PostgreSQL index entry has at most 2,704 bytes."""

SCHEMA = MetaData()

# In SQLite, a column is an alias of the rowid only if its type is INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

# Sort texts by code points in both databases, regardless of the locale of the database.
_SORTABLE = Text().with_variant(Text(collation="C"), "postgresql")

numbers = Sequence("inference_numbers", metadata=SCHEMA)
"""The sequence of numbers in PostgreSQL; in SQLite the writer increments the largest number."""

schema_version = Table("inference_schema", SCHEMA, Column("version", Integer, nullable=False))
"""One row with the version of these tables."""

inferences = Table(
    "inferences",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("id", _SORTABLE, nullable=False),
    Column("base_id", _SORTABLE),
    Column("request_id", _SORTABLE, nullable=False),
    Column("input", Integer, nullable=False),
    Column("datum", Integer, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("model", _SORTABLE, nullable=False),
    Column("version", Text, nullable=False),
    Column("task_type", Text, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("duration", BigInteger, nullable=False),
    Column("image_digest", _SORTABLE),
    Column("image_width", Integer),
    Column("image_height", Integer),
    Column("image_size", BigInteger),
    Column("image_kept", Boolean, nullable=False),
    Column("error", _SORTABLE),
    Column("explanation", Boolean, nullable=False),
    Column("latitude", Double),
    Column("longitude", Double),
    Column("reason", _SORTABLE),
    Column("probability", Double),
    # Long texts come last: in a scan of many rows, columns after a long text are slow to read.
    Column("message", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("records", Text),
)
"""One row for each `RecordedInference`, with the same names and units.

`parameters` (an object), `metadata` (a list of objects `key`, `type`, `value`) and `records` (a list of objects) are
JSON. `latitude` and `longitude` are degrees from the metadata of these names, if they are numbers in range.
"""

metadata = Table(
    "inference_metadata",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("place", SmallInteger, primary_key=True, autoincrement=False),
    Column("key", _SORTABLE, nullable=False),
    Column("iv", BigInteger),
    Column("fv", Double),
    Column("tv", _SORTABLE),
    Column("jv", Text().with_variant(JSONB(), "postgresql")),
    sqlite_with_rowid=False,
)
"""One row for each metadata entry, its value in the column of its type: `iv` int, `fv` float, `tv` str, `jv` dict.

`place` is the index of the entry. An int larger than 64 bits is in `fv`. Keys and texts are truncated to
`INDEXED_CHARACTERS`. For an inference with very many entries, only the first have rows.
"""

labels = Table(
    "inference_labels",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("label", _SORTABLE, primary_key=True),
    Column("score", Double),
    Column("count", Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""One row for each predicted label: its best score (None for tasks without scores), and its count.

For an inference with very many labels, only those with the best scores have rows. Labels are truncated to
`INDEXED_CHARACTERS`.
"""

truths = Table(
    "inference_truths",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("current", Boolean, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("source", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("comment", Text, nullable=False),
    Column("records", Text),
    sqlite_with_rowid=False,
)
"""One row for each revision of a `Truth`, with the same names and units; `records` is JSON.

At most one revision of an inference is `current`. None is after the truth was withdrawn.
"""

OF_INFERENCE = (metadata, labels, truths)
"""The tables whose rows belong to an inference, and are deleted with it."""


def _index_present(name: str, value: Column[Any], *columns: Column[Any]) -> None:
    """Define an index over `columns` of the rows that have a `value`."""
    present = value.is_not(None)
    Index(name, *columns, sqlite_where=present, postgresql_where=present)


_columns = inferences.c
Index("inferences_id", _columns.id, unique=True)
Index("inferences_request_id", _columns.request_id)
Index("inferences_started", _columns.started, _columns.number)
Index("inferences_model", _columns.model, _columns.number)
_index_present("inferences_base_id", _columns.base_id, _columns.base_id)
_index_present("inferences_error", _columns.error, _columns.error, _columns.number)
_index_present("inferences_position", _columns.latitude, _columns.latitude, _columns.longitude, _columns.number)
_index_present("inferences_reason", _columns.reason, _columns.reason, _columns.number)
_index_present("inferences_image", _columns.image_digest, _columns.image_digest, _columns.started)
for _value in (metadata.c.iv, metadata.c.fv, metadata.c.tv):
    _index_present(f"inference_metadata_{_value.name}", _value, metadata.c.key, _value, metadata.c.number)
_index_present("inference_metadata_jv", metadata.c.jv, metadata.c.key, metadata.c.number)
Index("inference_labels_label", labels.c.label, labels.c.number, labels.c.score)
