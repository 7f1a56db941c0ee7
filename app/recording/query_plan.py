"""How the newest matches of a query are found with little work, whatever the filters match.

The newest inferences have the largest numbers. A few matches of one filter are found through its index and tested one
by one; where every filter has many, the inferences are walked from the newest on, through an index that has them in
that order where there is one, until the page is full. Which is better is told from how many entries the indexes have,
counted up to a limit. A store's own planner knows less: SQLite's, without statistics, took minutes for two filters.
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
"""Asks the store."""

_COUNTED = 100_000
"""No more entries of an index than this are counted, which takes some 10 ms."""

_SAMPLED = 1000
"""Rows that tell how many pass a test which no index knows."""

_SCANNING = 0.2
"""What a test costs within an index, where testing an inference in its turn costs 1."""

_EVERYTHING = Source(table=inferences, where=lambda row: row.c.number.is_not(None), ordered=True)


# One for each: SQLite walks over everything for both at once.
_ENDS = select(
    select(func.min(inferences.c.number)).scalar_subquery(), select(func.max(inferences.c.number)).scalar_subquery()
)


class _Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What the indexes say of a part.

    Attributes:
        entries: in the index that lead to its matches, at most `_COUNTED`; None where there is no index.
        share: of those, how many are matches, about.
    """

    entries: int | None
    share: float = 1.0


def newest_numbers(ask: Rows, parts: Sequence[Part], before: int | None, limit: int) -> list[int]:
    """The numbers of the newest inferences that meet every part, newest first.

    Args:
        ask: asks the store.
        parts: of the query.
        before: only numbers below this one.
        limit: at most so many.
    """
    everything = _least_and_largest(ask(_ENDS))
    if everything is None:
        return []
    low, high = everything
    if before is not None:
        high = min(high, before - 1)
    estimates = [_estimate(ask, each) for each in parts]
    if high < low or any(each.entries == 0 for each in estimates):
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
    """How many of the first `most` rows of a source pass a test."""
    row = source.table.alias()
    passes = literal(1) if tested is None else case((tested(row), 1), else_=0)
    some = select(passes.label("passes")).select_from(row).where(source.where(row)).limit(most).subquery()
    counted = func.count() if tested is None else func.sum(some.c.passes)
    return int(ask(select(counted).select_from(some))[0][0] or 0)


def _cheapest(parts: Sequence[Part], estimates: Sequence[_Estimate], everything: int, limit: int) -> Part | None:
    """The part whose sources should lead, None to walk over everything.

    What a walk costs is unknown, because filters may have to do with each other: between what it would be if they had
    not, and the whole way. The geometric mean of the two is taken.
    """
    shares = [1.0 if each.entries is None else min(1.0, each.entries / everything) for each in estimates]
    matching = math.prod(share * each.share for share, each in zip(shares, estimates, strict=True))
    needed = limit / max(matching, 1e-12)
    best, least = None, _between(needed, everything)
    for part, estimate, share in zip(parts, estimates, shares, strict=True):
        entries = estimate.entries
        if entries is None:
            continue
        if all(each.ordered for each in part.sources):
            cost = _between(needed * share, entries if entries < _COUNTED else everything * share)
        elif entries < _COUNTED:
            cost = float(entries)
        elif any(each.tested is not None for each in part.sources):
            cost = everything * _SCANNING
        else:
            continue
        if cost < least:
            best, least = part, cost
    return best


def _between(expected: float, most: float) -> float:
    return math.sqrt(min(expected, most) * most)


def _span(part: Part) -> Executable:
    """The least and the largest number of the inferences of a time."""
    (source,) = part.sources
    row = source.table.alias()
    return select(func.min(row.c.number), func.max(row.c.number)).where(source.where(row))


def _least_and_largest(rows: Sequence[Row[Any]]) -> tuple[int, int] | None:
    least, largest = tuple(rows[0])
    return None if least is None else (int(least), int(largest))


def _statement(parts: Sequence[Part], leading: Part | None, low: int, high: int, limit: int) -> Executable:
    sources = (_EVERYTHING,) if leading is None else leading.sources
    others = [each for each in parts if each is not leading or not each.exact]
    arms = [_arm(each, others, low, high) for each in sources]
    if len(arms) == 1:
        found = arms[0] if sources[0].table is inferences else arms[0].distinct()
        return found.order_by(desc("number")).limit(limit)
    return union(*arms).order_by(desc("number")).limit(limit)


def _arm(source: Source, others: Sequence[Part], low: int, high: int) -> Select[Any]:
    row = source.table.alias()
    number: ColumnElement[int] = row.c.number
    bounded = number if source.ordered else unindexed(number)
    probes = [each.probe(number) for each in others if each.probe is not None]
    inside = [each.row for each in others if each.row is not None]
    if inside:
        probes.append(_row_is(number, lambda found: and_(*(each(found) for each in inside))))
    if source.tested is not None:
        probes.insert(0, source.tested(row))
    return select(number.label("number")).where(source.where(row), bounded >= low, bounded <= high, *probes)


def _row_is(number: ColumnElement[int], where: Callable[[FromClause], ColumnElement[bool]]) -> ColumnElement[bool]:
    row = inferences.alias()
    return select(literal(1)).select_from(row).where(row.c.number == number, where(row)).exists()
