"""Run SQL of the user over documented views, in addition to the tables, which stay visible."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

_TIMES = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', started / 1000000.0, 'unixepoch')",
    "postgresql": "to_timestamp(started / 1000000.0)",
}
_JSON_TYPES = {"sqlite": "TEXT", "postgresql": "JSONB"}
# The user's SQL is a subquery, so that it can only read.
_STATEMENT = """
WITH recorded AS NOT MATERIALIZED (
  SELECT number, id, {time} AS time, started, duration / 1000.0 AS milliseconds, model, version, task_type, protocol,
    request_id, base_id, error, message, explanation, image_digest, image_width, image_height, latitude, longitude,
    CAST(parameters AS {json}) AS parameters, CAST(metadata AS {json}) AS metadata, CAST(records AS {json}) AS records
  FROM inferences
), recorded_labels AS NOT MATERIALIZED (
  SELECT number, label, score, count FROM inference_labels
), recorded_metadata AS NOT MATERIALIZED (
  SELECT number, key, iv AS int_value, fv AS float_value, tv AS text_value, jv AS dict_value FROM inference_metadata
)
SELECT * FROM (
{sql}
) AS result
"""


class SqlResult(NamedTuple):
    """The names of the columns of a result, and its rows in the types of the driver."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def run_sql(connection: Connection, sql: str, limit: int | None) -> SqlResult:
    """Run a SELECT.

    Args:
        connection: a read-only connection.
        sql: the statement.
        limit: maximum number of rows; None for all.
    """
    dialect = connection.dialect.name
    statement = _STATEMENT.format(time=_TIMES[dialect], json=_JSON_TYPES[dialect], sql=sql.rstrip().rstrip(";"))
    # SQLAlchemy would take a colon for the beginning of a parameter's name.
    result = connection.execute(text(statement.replace(":", "\\:")))
    rows = result.fetchall() if limit is None else result.fetchmany(limit)
    return SqlResult(list(result.keys()), rows)
