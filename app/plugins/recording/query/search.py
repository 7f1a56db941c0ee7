"""Find the newest matches of a query: start with its rarest filter, and test the others by primary key.

The newest inferences have the largest numbers. SQLite's own choice took minutes for two filters.
"""

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, desc, exists, func, or_, select, true, union
from sqlalchemy.sql.elements import UnaryExpression
from sqlalchemy.sql.operators import custom_op
from sqlalchemy.sql.visitors import replacement_traverse

from app.plugins.recording.query.filters import QueryFilter
from app.plugins.recording.stores.tables import inferences

_MAX_COUNTED = 100_000  # entries of an index

_ORDERED_COST = 0.1
"""Cost of an entry when the newest come first, because the page is usually full before the last one."""

_NUMBER_RANGE = select(func.min(inferences.c.number), func.max(inferences.c.number))
# Two subqueries, because SQLite scans the whole table for min and max in one query.
_FULL_RANGE = select(
    select(func.min(inferences.c.number)).scalar_subquery(), select(func.max(inferences.c.number)).scalar_subquery()
)
_ALL = QueryFilter(alternatives=[true()], ordered=True)


def newest_numbers(
    connection: Connection, filters: Sequence[QueryFilter], before: int | None = None, limit: int | None = None
) -> Sequence[int]:
    """Return at most `limit` numbers below `before` of the inferences that meet every filter, newest first."""
    time_range = next((item.alternatives[0] for item in filters if item.is_time_range), None)
    statement = _FULL_RANGE if time_range is None else _NUMBER_RANGE.where(time_range)
    low, high = connection.execute(statement).one()
    if low is None or (before is not None and before <= low):
        return []
    high = high if before is None else min(high, before - 1)
    # Read the rows of the cheapest filter, and test the other filters for each of them.
    driver, parts, lowest_cost = _ALL, _ALL.alternatives, (high - low + 1) * _ORDERED_COST
    for query_filter in filters:
        if not query_filter.indexed:
            continue
        entry_cost = _ORDERED_COST if query_filter.ordered else 1
        max_counted = min(_MAX_COUNTED, math.ceil(lowest_cost / entry_cost))
        entries = select(query_filter.table.c.number).limit(max_counted)
        found = [select(func.count()).select_from(entries.where(part).subquery()) for part in query_filter.alternatives]
        counts = [connection.execute(statement).scalar_one() for statement in found]
        if not any(counts):
            return []
        cost = sum(counts) * entry_cost
        if cost < lowest_cost and (query_filter.ordered or max(counts) < max_counted):
            driver, lowest_cost = query_filter, cost
            parts = [part for part, count in zip(query_filter.alternatives, counts, strict=True) if count]
    others = [query_filter for query_filter in filters if query_filter is not driver]
    is_sqlite = connection.dialect.name == "sqlite"
    number = driver.table.c.number
    ranged = number if driver.ordered or not is_sqlite else _unindexed(number)
    tests = [_test(query_filter, number, is_sqlite) for query_filter in others]
    selects = [select(number).where(part, ranged >= low, ranged <= high, *tests).distinct() for part in parts]
    return connection.execute(union(*selects).order_by(desc("number")).limit(limit)).scalars().all()


def _test(query_filter: QueryFilter, number: ColumnElement[int], is_sqlite: bool) -> ColumnElement[bool]:
    """Return the condition that the inference with this number meets a filter."""
    row = query_filter.table.alias()

    def of_row(element: object, **_: Any) -> ColumnElement[Any] | None:
        if not isinstance(element, Column):
            return None
        column = row.c[element.name]
        # SQLite would scan a range of another index for each tested inference.
        return _unindexed(column) if is_sqlite and not query_filter.ordered else column

    selected = or_(*(replacement_traverse(part, {}, of_row) for part in query_filter.alternatives))
    found = exists().where(row.c.number == number, selected)
    return ~found if query_filter.negated else found


def _unindexed(column: ColumnElement[Any]) -> ColumnElement[Any]:
    plus: custom_op[Any] = custom_op("+")
    return UnaryExpression(column, operator=plus, type_=column.type)
