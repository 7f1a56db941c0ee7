"""Translate conditions on metadata into SQL over `app.recording.tables`, for SQLite and PostgreSQL.

Every value and member name is a bound parameter. For SQLite, the complete JSON path is bound.
"""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from sqlalchemy import ColumnElement, and_, cast, exists, false, func, literal, or_, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.sql.expression import FromClause

from app.recording.query.conditions import Condition, Operator, Scalar
from app.recording.tables import INDEXED_CHARACTERS
from tasks.inference.error import invalid, quote_value

__all__ = ("Dialect", "EntryTest", "Predicate", "entry_tests")

Dialect = Literal["sqlite", "postgresql"]
Predicate = Callable[[FromClause], ColumnElement[bool]]
"""Given an alias of a table, return the condition that selects its rows."""


class EntryTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test of metadata rows on one value column.

    Attributes:
        column: the name of the column; rows without a value there do not pass.
        condition: the test.
        indexed: whether the index over key and column finds the passing rows; otherwise it finds rows with the key.
    """

    column: str
    condition: Predicate
    indexed: bool = True


_INT64 = 2**63
_ORDERED = {
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_UNQUOTABLE = set('"\\') | {chr(code) for code in range(32)}
"""Characters that a member name in an SQLite JSON path cannot contain."""


def entry_tests(condition: Condition, dialect: Dialect) -> list[EntryTest]:
    """Return the tests for rows with the condition's key; a row must pass one of them.

    A condition with `!=` gives the tests of `=`; the caller checks that no entry passes.

    Raises:
        InferenceError: for a member name that SQL cannot express.
    """
    if condition.members:
        return [EntryTest(column="jv", condition=_member_test(condition, dialect), indexed=False)]
    if condition.operator is Operator.CONTAINS:
        return list(_containment_tests(condition, dialect))
    return list(_comparison_tests(condition))


def _comparison_tests(condition: Condition) -> Iterator[EntryTest]:
    numbers = [value for value in condition.values if not isinstance(value, str)]
    texts = [value[:INDEXED_CHARACTERS] for value in condition.values if isinstance(value, str)]
    if numbers and condition.type in (None, "int"):
        yield EntryTest(column="iv", condition=lambda row: _compare_integers(row.c.iv, condition.operator, numbers))
    if numbers and condition.type in (None, "float"):
        floats = [float(number) for number in numbers]
        yield EntryTest(column="fv", condition=lambda row: _compare(row.c.fv, condition.operator, floats))
    if texts and condition.type in (None, "str"):
        yield EntryTest(column="tv", condition=lambda row: _compare(row.c.tv, condition.operator, texts))


def _compare(column: ColumnElement[Any], comparison: Operator, values: Sequence[Scalar]) -> ColumnElement[bool]:
    if comparison in _ORDERED:
        return _ORDERED[comparison](column, values[0])
    return column == values[0] if len(values) == 1 else column.in_(values)


def _compare_integers(
    column: ColumnElement[Any], comparison: Operator, values: Sequence[int | float]
) -> ColumnElement[bool]:
    """Compare 64-bit integers with numbers that may be fractional or larger than 64 bits."""
    match comparison:
        case Operator.LESS:
            return _at_most(column, math.ceil(values[0]) - 1)
        case Operator.LESS_OR_EQUAL:
            return _at_most(column, math.floor(values[0]))
        case Operator.GREATER:
            return _at_least(column, math.floor(values[0]) + 1)
        case Operator.GREATER_OR_EQUAL:
            return _at_least(column, math.ceil(values[0]))
        case _:
            integers = [int(value) for value in values if int(value) == value and -_INT64 <= value < _INT64]
            return _compare(column, comparison, integers) if integers else false()


def _at_most(column: ColumnElement[Any], bound: int) -> ColumnElement[bool]:
    return column <= min(bound, _INT64 - 1) if bound >= -_INT64 else false()


def _at_least(column: ColumnElement[Any], bound: int) -> ColumnElement[bool]:
    return column >= max(bound, -_INT64) if bound < _INT64 else false()


def _containment_tests(condition: Condition, dialect: Dialect) -> Iterator[EntryTest]:
    """Yield tests for a text that contains the value, and for an object with a member of this name."""
    text = str(condition.values[0])
    if condition.type in (None, "str"):
        yield EntryTest(column="tv", condition=lambda row: _contains_text(row.c.tv, text, dialect), indexed=False)
    if condition.type in (None, "dict") and not _UNQUOTABLE & set(text):
        yield EntryTest(column="jv", condition=lambda row: _Member(row.c.jv, (text,), dialect).present(), indexed=False)


def _contains_text(column: ColumnElement[Any], text: str, dialect: Dialect) -> ColumnElement[bool]:
    """Test whether the column contains `text`, case-sensitively and without wildcards such as `%`."""
    return (func.instr(column, text) if dialect == "sqlite" else func.strpos(column, text)) > 0


def _member_test(condition: Condition, dialect: Dialect) -> Predicate:
    for name in condition.members:
        if _UNQUOTABLE & set(name):
            raise invalid(f"Expected a member's name without quotes and backslashes, got {quote_value(name)}", "where")
    comparison, values = condition.operator, condition.values

    def test(row: FromClause) -> ColumnElement[bool]:
        member = _Member(row.c.jv, condition.members, dialect)
        if comparison is Operator.CONTAINS:
            return member.contains(values[0])
        return or_(*(member.compare(comparison, value) for value in values))

    return test


class _Member:
    """A member of an object in a JSON column."""

    def __init__(self, column: ColumnElement[Any], names: Sequence[str], dialect: Dialect) -> None:
        self._column = column
        self._sqlite = dialect == "sqlite"
        self._dialect: Dialect = dialect
        self._names = names
        self._path = "$" + "".join(f'."{name}"' for name in names)
        self._value: ColumnElement[Any] = type_coerce(column, JSONB)
        if not self._sqlite:
            for name in names:
                self._value = self._value[name]

    def present(self) -> ColumnElement[bool]:
        return self._json_type.is_not(None)

    def compare(self, comparison: Operator, value: Scalar) -> ColumnElement[bool]:
        if isinstance(value, bool):
            json_type = ("true" if value else "false") if self._sqlite else "boolean"
            same = self._json_type == json_type
            return same if self._sqlite else and_(same, self._text == str(value).lower())
        comparator = _ORDERED.get(comparison, operator.eq)
        if isinstance(value, str):
            return and_(self._has_type("text", "string"), comparator(self._text, value))
        number = func.json_extract(self._column, self._path) if self._sqlite else self._value
        expected = literal(value) if self._sqlite else _json(value)
        return and_(self._has_type("number", "number"), comparator(number, expected))

    def contains(self, value: Scalar) -> ColumnElement[bool]:
        alternatives = [and_(self._has_type("array", "array"), self._has_item(value))]
        if isinstance(value, str):
            alternatives.append(
                and_(self._has_type("text", "string"), _contains_text(self._text, value, self._dialect))
            )
            if not _UNQUOTABLE & set(value):
                alternatives.append(
                    and_(
                        self._has_type("object", "object"),
                        _Member(self._column, (*self._names, value), self._dialect).present(),
                    )
                )
        return or_(*alternatives)

    def _has_item(self, value: Scalar) -> ColumnElement[bool]:
        if not self._sqlite:
            return self._value.op("@>", is_comparison=True)(_json([value]))
        items = func.json_each(self._column, self._path).table_valued("value", "type")
        if isinstance(value, bool):
            same = items.c.type == str(value).lower()
        elif isinstance(value, str):
            same = and_(items.c.type == "text", items.c.value == value)
        else:
            same = and_(items.c.type.in_(("integer", "real")), items.c.value == value)
        return exists(select(literal(1)).select_from(items).where(same))

    @property
    def _json_type(self) -> ColumnElement[Any]:
        return func.json_type(self._column, self._path) if self._sqlite else func.jsonb_typeof(self._value)

    def _has_type(self, in_sqlite: str, in_postgresql: str) -> ColumnElement[bool]:
        if not self._sqlite:
            return self._json_type == in_postgresql
        return self._json_type.in_(("integer", "real")) if in_sqlite == "number" else self._json_type == in_sqlite

    @property
    def _text(self) -> ColumnElement[Any]:
        if self._sqlite:
            return func.json_extract(self._column, self._path)
        return self._value.astext.collate("C")


def _json(value: object) -> ColumnElement[Any]:
    return cast(literal(msgspec.json.encode(value).decode()), JSONB)
