"""Split a query into parts: the test of each on one inference, and the indexes that find its matches."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Table, and_, exists, false, literal, not_, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FromClause
from sqlalchemy.sql.functions import FunctionElement

from app.recording.filters import Condition, Operator
from app.recording.geography import Box, Shape
from app.recording.query import ANY_ERROR, NO_ERROR, InferenceQuery
from app.recording.query_metadata import Dialect, EntryTest, Predicate, entry_tests
from app.recording.query_places import place_test, within
from app.recording.tables import INDEXED_CHARACTERS, inferences, labels, metadata

__all__ = ("Part", "Source", "parts_of", "unindexed")

Probe = Callable[[ColumnElement[int]], ColumnElement[bool]]
"""Given the number of an inference, return the condition that it must meet."""


class unindexed(FunctionElement[Any]):  # noqa: N801
    """A column for which SQLite's planner must not use an index.

    Without statistics, the planner assumes that an index range is narrow, and scans it again for every tested
    inference. Two conditions then took minutes instead of milliseconds.
    """

    inherit_cache = True
    name = "unindexed"


@compiles(unindexed)
def _plain(element: unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(unindexed, "sqlite")
def _with_plus(element: unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return f"+{compiler.process(element.clauses, **options)}"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that an index finds.

    Attributes:
        table: a table with a column `number`.
        where: the condition on its rows.
        tested: an additional condition that no index covers.
        ordered: whether the index returns the rows in the order of their numbers.
    """

    table: Table
    where: Predicate
    tested: Predicate | None = None
    ordered: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One filter of a query.

    Attributes:
        row: the condition on a row of `inferences`.
        probe: the condition on rows of other tables with its number, if `row` is None.
        sources: together they find at least every match; empty when no index helps.
        exact: whether the sources find only matches, so that no further test is needed.
        of_time: whether it filters by arrival time, which correlates closely with the numbers.
    """

    row: Predicate | None = None
    probe: Probe | None = None
    sources: Sequence[Source] = ()
    exact: bool = True
    of_time: bool = False


def parts_of(query: InferenceQuery, dialect: Dialect) -> list[Part]:
    """Return the parts of a query. An inference must meet every part.

    Raises:
        InferenceError: for a condition that SQL cannot express.
    """
    parts = [_metadata_part(condition, dialect) for condition in query.conditions]
    parts += [_place_part(shape) for shape in query.shapes]
    if query.label is not None or query.min_score is not None or query.max_score is not None:
        parts.append(_label_part(query.label, query.min_score, query.max_score))
    for name in ("request_id", "base_id", "model", "digest"):
        value = getattr(query, name)
        if value is not None:
            parts.append(_column_part({"digest": "image_digest"}.get(name, name), value))
    for name in ("protocol", "task_type"):
        value = getattr(query, name)
        if value is not None:
            parts.append(Part(row=lambda row, name=name, value=value: row.c[name] == value))
    if query.error is not None:
        parts.append(_error_part(query.error))
    if query.since is not None or query.until is not None:
        parts.append(_time_part(query.since, query.until))
    return parts


def _column_part(name: str, value: str) -> Part:
    cut = value[:INDEXED_CHARACTERS]

    def equal(row: FromClause) -> ColumnElement[bool]:
        return row.c[name] == cut

    return Part(row=equal, sources=[Source(table=inferences, where=equal, ordered=name == "model")])


def _error_part(error: str) -> Part:
    if error == NO_ERROR:
        return Part(row=lambda row: row.c.error.is_(None))

    def failed(row: FromClause) -> ColumnElement[bool]:
        return row.c.error.is_not(None) if error == ANY_ERROR else row.c.error == error

    return Part(row=failed, sources=[Source(table=inferences, where=failed, ordered=error != ANY_ERROR)])


def _time_part(since: int | None, until: int | None) -> Part:
    def arrived(row: FromClause) -> ColumnElement[bool]:
        bounds: list[ColumnElement[bool]] = []
        if since is not None:
            bounds.append(row.c.started >= since)
        if until is not None:
            bounds.append(row.c.started < until)
        return and_(*bounds)

    return Part(row=arrived, sources=[Source(table=inferences, where=arrived)], of_time=True)


def _label_part(label: str | None, least: float | None, most: float | None) -> Part:
    cut = None if label is None else label[:INDEXED_CHARACTERS]

    def fits(row: FromClause) -> ColumnElement[bool]:
        bounds = _named(row, cut)
        if least is not None:
            bounds.append(row.c.score >= least)
        if most is not None:
            bounds.append(row.c.score <= most)
        return and_(*bounds)

    def found(number: ColumnElement[int]) -> ColumnElement[bool]:
        there = _there(labels, number, fits)
        if label is not None or most is None:
            return there
        # Without a label, the best score is within the limit only if no label exceeds it.
        return and_(there, not_(_there(labels, number, lambda row: row.c.score > most)))

    sources = [] if label is None else [Source(table=labels, where=fits, ordered=True)]
    return Part(probe=found, sources=sources)


def _named(row: FromClause, label: str | None) -> list[ColumnElement[bool]]:
    return [] if label is None else [row.c.label == label]


def _place_part(shape: Shape) -> Part:
    ranges = shape.bounds()
    south, north = min(bounds.south for bounds in ranges), max(bounds.north for bounds in ranges)

    def near(row: FromClause) -> ColumnElement[bool]:
        return and_(row.c.latitude.between(south, north), or_(*(within(row, bounds) for bounds in ranges)))

    inside = place_test(shape)
    tested = None if isinstance(shape, Box) else inside
    return Part(row=inside, sources=[Source(table=inferences, where=near, tested=tested)])


def _metadata_part(condition: Condition, dialect: Dialect) -> Part:
    tests = entry_tests(condition, dialect)
    if condition.operator is not Operator.NOT_EQUAL:
        return Part(probe=_having(condition, tests), sources=[_entries(condition, test) for test in tests])
    # Match inferences that have the key, but no equal entry under it.
    present = [EntryTest(column=name, passes=_is_there(name)) for name in _columns(condition)]
    there, equal = _having(condition, present), _having(condition, tests)
    return Part(
        probe=lambda number: and_(there(number), not_(equal(number))),
        sources=[_entries(condition, test) for test in present],
        exact=False,
    )


def _having(condition: Condition, tests: Sequence[EntryTest]) -> Probe:
    key = condition.key[:INDEXED_CHARACTERS]
    # For one value of one column the index needs a single lookup; it would scan a range for every inference.
    one = condition.operator is Operator.EQUAL and len(tests) == 1 and tests[0].indexed

    def passes(row: FromClause) -> ColumnElement[bool]:
        return and_((row.c.key if one else unindexed(row.c.key)) == key, or_(*(test.passes(row) for test in tests)))

    return lambda number: _there(metadata, number, passes) if tests else false()


def _entries(condition: Condition, test: EntryTest) -> Source:
    key, present = condition.key[:INDEXED_CHARACTERS], _is_there(test.column)
    inner = test.passes if test.indexed else present
    # In the index over key and object, the number follows the key directly.
    ordered = test.column == "jv" or (test.indexed and condition.operator is Operator.EQUAL)
    return Source(
        table=metadata,
        where=lambda row: and_(row.c.key == key, inner(row)),
        tested=None if test.indexed else test.passes,
        ordered=ordered,
    )


def _columns(condition: Condition) -> Sequence[str]:
    """Return the columns that can hold an equal entry."""
    by_type = {"int": ("iv",), "float": ("fv",), "str": ("tv",), "dict": ("jv",), None: ("iv", "fv", "tv", "jv")}
    return ("jv",) if condition.members else by_type[condition.type]


def _is_there(name: str) -> Predicate:
    return lambda row: row.c[name].is_not(None)


def _there(table: Table, number: ColumnElement[int], where: Predicate) -> ColumnElement[bool]:
    row = table.alias()
    return exists(select(literal(1)).select_from(row).where(row.c.number == number, where(row)))
