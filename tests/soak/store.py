"""Whether the store has what was acknowledged."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec

__all__ = ("Kept", "kept")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the store has of what was answered.

    Attributes:
        acknowledged: answered requests that the store must contain.
        missing: the ids of those that are not.
        doubled: the ids of those that are there more often than they should be.
        rows: the total number of rows in the store.
    """

    acknowledged: int
    missing: list[str]
    doubled: list[str]
    rows: int


def kept(store: Path, acknowledged: Mapping[str, int]) -> Kept:
    """Hold a SQLite store against the rows that each request is to have there, by the request's id."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        found = Counter(
            dict(
                connection.execute(
                    "SELECT request_id, count(*) FROM inferences WHERE error IS NULL GROUP BY request_id"
                )
            )
        )
        (rows,) = connection.execute("SELECT count(*) FROM inferences").fetchone()
    return Kept(
        acknowledged=len(acknowledged),
        missing=[number for number, count in acknowledged.items() if found[number] < count],
        doubled=[number for number, count in acknowledged.items() if found[number] > count],
        rows=rows,
    )
