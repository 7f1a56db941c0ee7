"""The tables of a store, the same in SQLite and in PostgreSQL: what is recorded, and what it is found by.

`inferences` has the whole of every inference; the other two have what filters look at, a part of the same once more.
Rows of all three belong together by `number`, which grows in the order of recording: the newest have the largest.
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

__all__ = ("INDEXED_CHARACTERS", "SCHEMA", "inferences", "labels", "metadata", "numbers", "schema_version")

INDEXED_CHARACTERS = 400
"""As much of a text goes into an indexed column: an entry of PostgreSQL's indexes has 2,704 bytes at most."""

SCHEMA = MetaData()

# SQLite makes a column the row's own key only when its type is written INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

# Texts are put in order by their characters' numbers, in both stores and whatever language a database is set to.
_ORDERED = Text().with_variant(Text(collation="C"), "postgresql")

numbers = Sequence("inference_numbers", metadata=SCHEMA)
"""Gives out numbers in PostgreSQL; in SQLite the one who writes counts on."""

schema_version = Table("inference_schema", SCHEMA, Column("version", Integer, nullable=False))
"""One row: which version of these tables the store has."""

inferences = Table(
    "inferences",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("id", _ORDERED, nullable=False),
    Column("base_id", _ORDERED),
    Column("request_id", _ORDERED, nullable=False),
    Column("input", Integer, nullable=False),
    Column("datum", Integer, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("model", _ORDERED, nullable=False),
    Column("version", Text, nullable=False),
    Column("task_type", Text, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("duration", BigInteger, nullable=False),
    Column("image_digest", _ORDERED),
    Column("image_width", Integer),
    Column("image_height", Integer),
    Column("image_size", BigInteger),
    Column("image_kept", Boolean, nullable=False),
    Column("error", _ORDERED),
    Column("explanation", Boolean, nullable=False),
    Column("latitude", Double),
    Column("longitude", Double),
    # Long texts stand last: what is behind one is slow to read where many rows are walked over.
    Column("message", Text, nullable=False),
    Column("parameters", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("records", Text),
)
"""One row a `RecordedInference`, with its fields' names and units.

`parameters` (an object), `metadata` (a list of objects `key`, `type`, `value`) and `records` (a list of objects) are
JSON. `latitude` and `longitude` are degrees, from the metadata of those names, where they are numbers in range.
"""

metadata = Table(
    "inference_metadata",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("place", SmallInteger, primary_key=True, autoincrement=False),
    Column("key", _ORDERED, nullable=False),
    Column("iv", BigInteger),
    Column("fv", Double),
    Column("tv", _ORDERED),
    Column("jv", Text().with_variant(JSONB(), "postgresql")),
    sqlite_with_rowid=False,
)
"""One row an entry of metadata, its value in the column of its type: `iv` int, `fv` float, `tv` str, `jv` dict.

`place` is its place among the entries. An int that has no room in 64 bits is in `fv`. Keys and texts are cut to
`INDEXED_CHARACTERS`; of an inference with very many entries the first are here.
"""

labels = Table(
    "inference_labels",
    SCHEMA,
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("label", _ORDERED, primary_key=True),
    Column("score", Double),
    Column("count", Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""One row a label that was found: the best score it has (None where the task gives none), and how often it was found.

Of very many labels, those of the best scores are here. Labels are cut to `INDEXED_CHARACTERS`.
"""


def _present(name: str, value: Column[Any], *columns: Column[Any]) -> None:
    """An index over `columns` of the rows that have a `value`."""
    present = value.is_not(None)
    Index(name, *columns, sqlite_where=present, postgresql_where=present)


_of = inferences.c
Index("inferences_id", _of.id, unique=True)
Index("inferences_request_id", _of.request_id)
Index("inferences_started", _of.started, _of.number)
Index("inferences_model", _of.model, _of.number)
_present("inferences_base_id", _of.base_id, _of.base_id)
_present("inferences_error", _of.error, _of.error, _of.number)
_present("inferences_position", _of.latitude, _of.latitude, _of.longitude, _of.number)
_present("inferences_image", _of.image_digest, _of.image_digest, _of.started)
for _value in (metadata.c.iv, metadata.c.fv, metadata.c.tv):
    _present(f"inference_metadata_{_value.name}", _value, metadata.c.key, _value, metadata.c.number)
_present("inference_metadata_jv", metadata.c.jv, metadata.c.key, metadata.c.number)
Index("inference_labels_label", labels.c.label, labels.c.number, labels.c.score)
