"""Plan how to find the newest matches of a query cheaply, however selective its filters are.

The newest inferences have the largest numbers. If one filter has few matches, its index finds them, and each is tested.
If every filter has many, the inferences are scanned from the newest until the page is full. The scan uses an index in
that order if one exists. The choice depends on the number of index entries, counted up to a limit. The planner of the
database knows less: SQLite without statistics took minutes for two filters.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, and_, case, desc, func, literal, select, union
from sqlalchemy.engine import Row
from sqlalchemy.sql.expression import Executable, FromClause

from app.recording.query.condition_sql import Predicate
from app.recording.query.filters import IndexSource, QueryFilter, unindexed
from app.recording.tables import inferences

__all__ = ("RunStatement", "newest_numbers")

RunStatement = Callable[[Executable], Sequence[Row[Any]]]
"""Runs a statement in the store."""

_MAX_COUNTED = 100_000
"""Maximum number of index entries to count, which takes about 10 ms."""

_SAMPLE_SIZE = 1000
"""Sample size for the share of rows that pass a test without an index."""

_INDEX_TEST_COST = 0.2
"""Cost of a test within an index, relative to the test of one inference in a scan."""

_FULL_SCAN = IndexSource(table=inferences, where=lambda row: row.c.number.is_not(None), ordered=True)


# Two subqueries, because SQLite scans the whole table for min and max in one query.
_NUMBER_RANGE = select(
    select(func.min(inferences.c.number)).scalar_subquery(), select(func.max(inferences.c.number)).scalar_subquery()
)


class _Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The selectivity of a filter, from its indexes.

    Attributes:
        entries: number of its index entries, at most `_MAX_COUNTED`; None without an index.
        share: approximate share of these entries that match.
    """

    entries: int | None
    share: float = 1.0


def newest_numbers(
    run: RunStatement, filters: Sequence[QueryFilter], before_number: int | None, limit: int
) -> list[int]:
    """Return the numbers of the newest inferences that meet every filter, newest first.

    Args:
        run: runs a statement in the store.
        filters: the filters of the query.
        before_number: return only numbers below this one.
        limit: maximum number of results.
    """
    full_range = _min_and_max(run(_NUMBER_RANGE))
    if full_range is None:
        return []
    low, high = full_range
    if before_number is not None:
        high = min(high, before_number - 1)
    estimates = [_estimate(run, query_filter) for query_filter in filters]
    if high < low or any(estimate.entries == 0 for estimate in estimates):
        return []
    driver = _cheapest(filters, estimates, high - low + 1, limit)
    for query_filter in filters:
        if query_filter.is_time_range and query_filter is not driver:
            time_range = _min_and_max(run(_number_range(query_filter)))
            if time_range is None:
                return []
            low, high = max(low, time_range[0]), min(high, time_range[1])
    rows = run(_statement(filters, driver, low, high, limit))
    return [int(row[0]) for row in rows]


def _estimate(run: RunStatement, query_filter: QueryFilter) -> _Estimate:
    if not query_filter.sources:
        return _Estimate(entries=None)
    entries = matches = 0.0
    for source in query_filter.sources:
        count = _count(run, source, _MAX_COUNTED)
        entries += count
        if source.extra_test is None or not count:
            matches += count
        else:
            sampled = min(count, _SAMPLE_SIZE)
            passed = _count(run, source, _SAMPLE_SIZE, source.extra_test)
            matches += count * max(passed, 0.5) / sampled
    return _Estimate(entries=int(min(entries, _MAX_COUNTED)), share=min(1.0, matches / max(entries, 1)))


def _count(run: RunStatement, source: IndexSource, limit: int, test: Predicate | None = None) -> int:
    """Count how many of the first `limit` rows of a source pass a test."""
    row = source.table.alias()
    passes = literal(1) if test is None else case((test(row), 1), else_=0)
    sample = select(passes.label("passes")).select_from(row).where(source.where(row)).limit(limit).subquery()
    counted = func.count() if test is None else func.sum(sample.c.passes)
    return int(run(select(counted).select_from(sample))[0][0] or 0)


def _cheapest(
    filters: Sequence[QueryFilter], estimates: Sequence[_Estimate], total: int, limit: int
) -> QueryFilter | None:
    """Return the filter whose sources should drive the search, or None to scan all inferences.

    The cost of a scan is unknown because filters may correlate. It lies between the cost for independent filters and
    the cost of a full scan. The estimate is their geometric mean.
    """
    shares = [1.0 if estimate.entries is None else min(1.0, estimate.entries / total) for estimate in estimates]
    matching = math.prod(share * estimate.share for share, estimate in zip(shares, estimates, strict=True))
    needed = limit / max(matching, 1e-12)
    best, lowest_cost = None, _geometric_mean(needed, total)
    for query_filter, estimate, share in zip(filters, estimates, shares, strict=True):
        entries = estimate.entries
        if entries is None:
            continue
        if all(source.ordered for source in query_filter.sources):
            cost = _geometric_mean(needed * share, entries if entries < _MAX_COUNTED else total * share)
        elif entries < _MAX_COUNTED:
            cost = float(entries)
        elif any(source.extra_test is not None for source in query_filter.sources):
            cost = total * _INDEX_TEST_COST
        else:
            continue
        if cost < lowest_cost:
            best, lowest_cost = query_filter, cost
    return best


def _geometric_mean(expected: float, maximum: float) -> float:
    return math.sqrt(min(expected, maximum) * maximum)


def _number_range(time_filter: QueryFilter) -> Executable:
    """Return a statement for the smallest and the largest number in a time range."""
    (source,) = time_filter.sources
    row = source.table.alias()
    return select(func.min(row.c.number), func.max(row.c.number)).where(source.where(row))


def _min_and_max(rows: Sequence[Row[Any]]) -> tuple[int, int] | None:
    smallest, largest = tuple(rows[0])
    return None if smallest is None else (int(smallest), int(largest))


def _statement(
    filters: Sequence[QueryFilter], driver: QueryFilter | None, low: int, high: int, limit: int
) -> Executable:
    sources = (_FULL_SCAN,) if driver is None else driver.sources
    remaining = [query_filter for query_filter in filters if query_filter is not driver or not query_filter.exact]
    selects = [_source_select(source, remaining, low, high) for source in sources]
    if len(selects) == 1:
        only = selects[0] if sources[0].table is inferences else selects[0].distinct()
        return only.order_by(desc("number")).limit(limit)
    return union(*selects).order_by(desc("number")).limit(limit)


def _source_select(source: IndexSource, filters: Sequence[QueryFilter], low: int, high: int) -> Select[Any]:
    row = source.table.alias()
    number: ColumnElement[int] = row.c.number
    bounded = number if source.ordered else unindexed(number)
    probes = [query_filter.probe(number) for query_filter in filters if query_filter.probe is not None]
    row_conditions = [query_filter.row for query_filter in filters if query_filter.row is not None]
    if row_conditions:
        probes.append(
            _row_matches(number, lambda inference: and_(*(predicate(inference) for predicate in row_conditions)))
        )
    if source.extra_test is not None:
        probes.insert(0, source.extra_test(row))
    return select(number.label("number")).where(source.where(row), bounded >= low, bounded <= high, *probes)


def _row_matches(number: ColumnElement[int], where: Callable[[FromClause], ColumnElement[bool]]) -> ColumnElement[bool]:
    row = inferences.alias()
    return select(literal(1)).select_from(row).where(row.c.number == number, where(row)).exists()
