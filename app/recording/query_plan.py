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

from app.recording.query_metadata import Predicate
from app.recording.query_parts import Part, Source, unindexed
from app.recording.tables import inferences

__all__ = ("Rows", "newest_numbers")

Rows = Callable[[Executable], Sequence[Row[Any]]]
"""Runs a statement in the store."""

_COUNTED = 100_000
"""Maximum number of index entries to count, which takes about 10 ms."""

_SAMPLED = 1000
"""Sample size for the share of rows that pass a test without an index."""

_SCANNING = 0.2
"""Cost of a test within an index, relative to the test of one inference in a scan."""

_EVERYTHING = Source(table=inferences, where=lambda row: row.c.number.is_not(None), ordered=True)


# Two subqueries, because SQLite scans the whole table for min and max in one query.
_ENDS = select(
    select(func.min(inferences.c.number)).scalar_subquery(), select(func.max(inferences.c.number)).scalar_subquery()
)


class _Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The selectivity of a part, from its indexes.

    Attributes:
        entries: number of its index entries, at most `_COUNTED`; None without an index.
        share: approximate share of these entries that match.
    """

    entries: int | None
    share: float = 1.0


def newest_numbers(ask: Rows, parts: Sequence[Part], before: int | None, limit: int) -> list[int]:
    """Return the numbers of the newest inferences that meet every part, newest first.

    Args:
        ask: runs a statement in the store.
        parts: the parts of the query.
        before: return only numbers below this one.
        limit: maximum number of results.
    """
    everything = _least_and_largest(ask(_ENDS))
    if everything is None:
        return []
    low, high = everything
    if before is not None:
        high = min(high, before - 1)
    estimates = [_estimate(ask, part) for part in parts]
    if high < low or any(estimate.entries == 0 for estimate in estimates):
        return []
    leading = _cheapest(parts, estimates, high - low + 1, limit)
    for part in parts:
        if part.of_time and part is not leading:
            of_time = _least_and_largest(ask(_span(part)))
            if of_time is None:
                return []
            low, high = max(low, of_time[0]), min(high, of_time[1])
    rows = ask(_statement(parts, leading, low, high, limit))
    return [int(row[0]) for row in rows]


def _estimate(ask: Rows, part: Part) -> _Estimate:
    if not part.sources:
        return _Estimate(entries=None)
    entries = matches = 0.0
    for source in part.sources:
        found = _count(ask, source, _COUNTED)
        entries += found
        if source.tested is None or not found:
            matches += found
        else:
            sampled = min(found, _SAMPLED)
            passed = _count(ask, source, _SAMPLED, source.tested)
            matches += found * max(passed, 0.5) / sampled
    return _Estimate(entries=int(min(entries, _COUNTED)), share=min(1.0, matches / max(entries, 1)))


def _count(ask: Rows, source: Source, most: int, tested: Predicate | None = None) -> int:
    """Count how many of the first `most` rows of a source pass a test."""
    row = source.table.alias()
    passes = literal(1) if tested is None else case((tested(row), 1), else_=0)
    some = select(passes.label("passes")).select_from(row).where(source.where(row)).limit(most).subquery()
    counted = func.count() if tested is None else func.sum(some.c.passes)
    return int(ask(select(counted).select_from(some))[0][0] or 0)


def _cheapest(parts: Sequence[Part], estimates: Sequence[_Estimate], everything: int, limit: int) -> Part | None:
    """Return the part whose sources should drive the search, or None to scan all inferences.

    The cost of a scan is unknown because filters may correlate. It lies between the cost for independent filters and
    the cost of a full scan. The estimate is their geometric mean.
    """
    shares = [1.0 if estimate.entries is None else min(1.0, estimate.entries / everything) for estimate in estimates]
    matching = math.prod(share * estimate.share for share, estimate in zip(shares, estimates, strict=True))
    needed = limit / max(matching, 1e-12)
    best, least = None, _between(needed, everything)
    for part, estimate, share in zip(parts, estimates, shares, strict=True):
        entries = estimate.entries
        if entries is None:
            continue
        if all(source.ordered for source in part.sources):
            cost = _between(needed * share, entries if entries < _COUNTED else everything * share)
        elif entries < _COUNTED:
            cost = float(entries)
        elif any(source.tested is not None for source in part.sources):
            cost = everything * _SCANNING
        else:
            continue
        if cost < least:
            best, least = part, cost
    return best


def _between(expected: float, most: float) -> float:
    return math.sqrt(min(expected, most) * most)


def _span(part: Part) -> Executable:
    """Return a statement for the smallest and the largest number in a time range."""
    (source,) = part.sources
    row = source.table.alias()
    return select(func.min(row.c.number), func.max(row.c.number)).where(source.where(row))


def _least_and_largest(rows: Sequence[Row[Any]]) -> tuple[int, int] | None:
    least, largest = tuple(rows[0])
    return None if least is None else (int(least), int(largest))


def _statement(parts: Sequence[Part], leading: Part | None, low: int, high: int, limit: int) -> Executable:
    sources = (_EVERYTHING,) if leading is None else leading.sources
    others = [part for part in parts if part is not leading or not part.exact]
    arms = [_arm(source, others, low, high) for source in sources]
    if len(arms) == 1:
        found = arms[0] if sources[0].table is inferences else arms[0].distinct()
        return found.order_by(desc("number")).limit(limit)
    return union(*arms).order_by(desc("number")).limit(limit)


def _arm(source: Source, others: Sequence[Part], low: int, high: int) -> Select[Any]:
    row = source.table.alias()
    number: ColumnElement[int] = row.c.number
    bounded = number if source.ordered else unindexed(number)
    probes = [part.probe(number) for part in others if part.probe is not None]
    inside = [part.row for part in others if part.row is not None]
    if inside:
        probes.append(_row_is(number, lambda found: and_(*(predicate(found) for predicate in inside))))
    if source.tested is not None:
        probes.insert(0, source.tested(row))
    return select(number.label("number")).where(source.where(row), bounded >= low, bounded <= high, *probes)


def _row_is(number: ColumnElement[int], where: Callable[[FromClause], ColumnElement[bool]]) -> ColumnElement[bool]:
    row = inferences.alias()
    return select(literal(1)).select_from(row).where(row.c.number == number, where(row)).exists()
