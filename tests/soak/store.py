"""Check that the store has all acknowledged inferences."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """Answered requests compared with the rows of the store.

    Attributes:
        acknowledged: answered requests that the store must contain.
        missing: ids of requests with too few rows.
        duplicates: ids of requests with too many rows.
        rows: the total number of rows in the store.
    """

    acknowledged: int
    missing: list[str]
    duplicates: list[str]
    rows: int


def check_store(store: Path, acknowledged: Mapping[str, int]) -> StoreReport:
    """Compare a SQLite store with the expected number of rows for each request id."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        counts = Counter(
            dict(
                connection.execute(
                    "SELECT request_id, count(*) FROM inferences WHERE error IS NULL GROUP BY request_id"
                )
            )
        )
        (rows,) = connection.execute("SELECT count(*) FROM inferences").fetchone()
    return StoreReport(
        acknowledged=len(acknowledged),
        missing=[number for number, count in acknowledged.items() if counts[number] < count],
        duplicates=[number for number, count in acknowledged.items() if counts[number] > count],
        rows=rows,
    )
