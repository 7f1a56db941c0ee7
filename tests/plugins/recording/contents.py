"""Read and change stores directly, without the code under test."""

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Any, cast

import asyncpg

Row = dict[str, Any]

_connect: Any = cast("Any", asyncpg).connect


def contents(url: str, table: str = "recordings LEFT JOIN recordings_metadata USING (number)") -> Sequence[Row]:
    """Return the rows of a table, in the order of their numbers; by default those of inferences with their metadata."""
    return execute(url, f"SELECT * FROM {table} ORDER BY number")


def execute(url: str, statement: str) -> Sequence[Row]:
    """Run a statement, and return the rows that it finds."""
    if url.startswith("postgresql"):
        return asyncio.run(_fetch(url, statement))
    with sqlite3.connect(url) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute(statement)]
    connection.close()
    return rows


async def _fetch(url: str, statement: str) -> Sequence[Row]:
    connection = await _connect(url)
    try:
        return [dict(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()
