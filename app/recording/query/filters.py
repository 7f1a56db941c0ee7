"""Split a query into filters: each has a test of one inference, and the indexes that find its matches."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Table, and_, exists, false, literal, not_, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FromClause
from sqlalchemy.sql.functions import FunctionElement

from app.recording.geography import Box, Shape
from app.recording.query.condition_sql import Dialect, EntryTest, Predicate, entry_tests
from app.recording.query.conditions import Condition, Operator
from app.recording.query.query import ANY_ERROR, NO_ERROR, InferenceQuery
from app.recording.query.shape_sql import is_within, shape_test
from app.recording.tables import INDEXED_CHARACTERS, inferences, labels, metadata

__all__ = ("IndexSource", "QueryFilter", "query_filters", "unindexed")

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
def _compile_plain(element: unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(unindexed, "sqlite")
def _compile_for_sqlite(element: unindexed, compiler: SQLCompiler, **options: Any) -> str:
    return f"+{compiler.process(element.clauses, **options)}"


class IndexSource(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that an index finds.

    Attributes:
        table: a table with a column `number`.
        where: the condition on its rows.
        extra_test: an additional condition that no index covers.
        ordered: whether the index returns the rows in the order of their numbers.
    """

    table: Table
    where: Predicate
    extra_test: Predicate | None = None
    ordered: bool = False


class QueryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """One filter of a query.

    Attributes:
        row: the condition on a row of `inferences`.
        probe: the condition on rows of other tables with its number, if `row` is None.
        sources: together they find at least every match; empty when no index helps.
        exact: whether the sources find only matches, so that no further test is needed.
        is_time_range: whether it filters by arrival time, which correlates closely with the numbers.
    """

    row: Predicate | None = None
    probe: Probe | None = None
    sources: Sequence[IndexSource] = ()
    exact: bool = True
    is_time_range: bool = False


def query_filters(query: InferenceQuery, dialect: Dialect) -> list[QueryFilter]:
    """Return the filters of a query. An inference must meet every filter.

    Raises:
        InferenceError: for a condition that SQL cannot express.
    """
    filters = [_metadata_filter(condition, dialect) for condition in query.conditions]
    filters += [_position_filter(shape) for shape in query.shapes]
    if query.label is not None or query.min_score is not None or query.max_score is not None:
        filters.append(_label_filter(query.label, query.min_score, query.max_score))
    for name in ("request_id", "base_id", "model", "digest"):
        value = getattr(query, name)
        if value is not None:
            filters.append(_column_filter({"digest": "image_digest"}.get(name, name), value))
    for name in ("protocol", "task_type"):
        value = getattr(query, name)
        if value is not None:
            filters.append(QueryFilter(row=lambda row, name=name, value=value: row.c[name] == value))
    if query.error is not None:
        filters.append(_error_filter(query.error))
    if query.since is not None or query.until is not None:
        filters.append(_time_filter(query.since, query.until))
    return filters


def _column_filter(name: str, value: str) -> QueryFilter:
    indexed_value = value[:INDEXED_CHARACTERS]

    def equal(row: FromClause) -> ColumnElement[bool]:
        return row.c[name] == indexed_value

    return QueryFilter(row=equal, sources=[IndexSource(table=inferences, where=equal, ordered=name == "model")])


def _error_filter(error: str) -> QueryFilter:
    if error == NO_ERROR:
        return QueryFilter(row=lambda row: row.c.error.is_(None))

    def failed(row: FromClause) -> ColumnElement[bool]:
        return row.c.error.is_not(None) if error == ANY_ERROR else row.c.error == error

    return QueryFilter(row=failed, sources=[IndexSource(table=inferences, where=failed, ordered=error != ANY_ERROR)])


def _time_filter(since: int | None, until: int | None) -> QueryFilter:
    def arrived(row: FromClause) -> ColumnElement[bool]:
        bounds: list[ColumnElement[bool]] = []
        if since is not None:
            bounds.append(row.c.started >= since)
        if until is not None:
            bounds.append(row.c.started < until)
        return and_(*bounds)

    return QueryFilter(row=arrived, sources=[IndexSource(table=inferences, where=arrived)], is_time_range=True)


def _label_filter(label: str | None, min_score: float | None, max_score: float | None) -> QueryFilter:
    indexed_label = None if label is None else label[:INDEXED_CHARACTERS]

    def matches(row: FromClause) -> ColumnElement[bool]:
        bounds = _label_equals(row, indexed_label)
        if min_score is not None:
            bounds.append(row.c.score >= min_score)
        if max_score is not None:
            bounds.append(row.c.score <= max_score)
        return and_(*bounds)

    def has_label(number: ColumnElement[int]) -> ColumnElement[bool]:
        exists_match = _row_exists(labels, number, matches)
        if label is not None or max_score is None:
            return exists_match
        # Without a label, the best score is within the limit only if no label exceeds it.
        return and_(exists_match, not_(_row_exists(labels, number, lambda row: row.c.score > max_score)))

    sources = [] if label is None else [IndexSource(table=labels, where=matches, ordered=True)]
    return QueryFilter(probe=has_label, sources=sources)


def _label_equals(row: FromClause, label: str | None) -> list[ColumnElement[bool]]:
    return [] if label is None else [row.c.label == label]


def _position_filter(shape: Shape) -> QueryFilter:
    ranges = shape.bounds()
    south, north = min(bounds.south for bounds in ranges), max(bounds.north for bounds in ranges)

    def in_ranges(row: FromClause) -> ColumnElement[bool]:
        return and_(row.c.latitude.between(south, north), or_(*(is_within(row, bounds) for bounds in ranges)))

    inside = shape_test(shape)
    extra_test = None if isinstance(shape, Box) else inside
    return QueryFilter(row=inside, sources=[IndexSource(table=inferences, where=in_ranges, extra_test=extra_test)])


def _metadata_filter(condition: Condition, dialect: Dialect) -> QueryFilter:
    tests = entry_tests(condition, dialect)
    if condition.operator is not Operator.NOT_EQUAL:
        return QueryFilter(
            probe=_has_entry(condition, tests), sources=[_entry_source(condition, test) for test in tests]
        )
    # Match inferences that have the key, but no equal entry under it.
    present = [EntryTest(column=name, condition=_is_not_null(name)) for name in _columns(condition)]
    has_key, equal = _has_entry(condition, present), _has_entry(condition, tests)
    return QueryFilter(
        probe=lambda number: and_(has_key(number), not_(equal(number))),
        sources=[_entry_source(condition, test) for test in present],
        exact=False,
    )


def _has_entry(condition: Condition, tests: Sequence[EntryTest]) -> Probe:
    key = condition.key[:INDEXED_CHARACTERS]
    # For one value of one column the index needs a single lookup; it would scan a range for every inference.
    single_lookup = condition.operator is Operator.EQUAL and len(tests) == 1 and tests[0].indexed

    def passes(row: FromClause) -> ColumnElement[bool]:
        return and_(
            (row.c.key if single_lookup else unindexed(row.c.key)) == key, or_(*(test.condition(row) for test in tests))
        )

    return lambda number: _row_exists(metadata, number, passes) if tests else false()


def _entry_source(condition: Condition, test: EntryTest) -> IndexSource:
    key, present = condition.key[:INDEXED_CHARACTERS], _is_not_null(test.column)
    indexed_test = test.condition if test.indexed else present
    # In the index over key and object, the number follows the key directly.
    ordered = test.column == "jv" or (test.indexed and condition.operator is Operator.EQUAL)
    return IndexSource(
        table=metadata,
        where=lambda row: and_(row.c.key == key, indexed_test(row)),
        extra_test=None if test.indexed else test.condition,
        ordered=ordered,
    )


def _columns(condition: Condition) -> Sequence[str]:
    """Return the columns that can hold an equal entry."""
    by_type = {"int": ("iv",), "float": ("fv",), "str": ("tv",), "dict": ("jv",), None: ("iv", "fv", "tv", "jv")}
    return ("jv",) if condition.members else by_type[condition.type]


def _is_not_null(name: str) -> Predicate:
    return lambda row: row.c[name].is_not(None)


def _row_exists(table: Table, number: ColumnElement[int], where: Predicate) -> ColumnElement[bool]:
    row = table.alias()
    return exists(select(literal(1)).select_from(row).where(row.c.number == number, where(row)))
