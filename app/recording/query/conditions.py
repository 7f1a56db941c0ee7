"""Conditions on typed metadata, read from text: ``camera = "north" and altitude > 100``.

::

    where      ::= condition ("and" condition)*
    condition  ::= path [":" type] operator value
    path       ::= name ("." name)*        the key, then members of its object
    name       ::= letters, digits, "_" and "-", not beginning with a digit; any other name in quotes
    type       ::= "str" | "int" | "float" | "dict"
    operator   ::= "=" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "contains"
    value      ::= number | text in quotes | "true" | "false" | "(" value ("," value)* ")"
"""

import math
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NoReturn, cast, get_args

import msgspec

from tasks.inference.error import invalid, quote_value

__all__ = ("Condition", "EntryType", "Operator", "Scalar", "check_text", "parse_conditions")

MAX_CONDITIONS = 32
MAX_VALUES = 1000
MAX_MEMBERS = 16
MAX_CHARACTERS = 20_000

Scalar = str | int | float | bool
EntryType = Literal["str", "int", "float", "dict"]


class Operator(StrEnum):
    """How to compare an entry with the values of a condition."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "in"
    CONTAINS = "contains"


_ORDERED = (Operator.LESS, Operator.LESS_OR_EQUAL, Operator.GREATER, Operator.GREATER_OR_EQUAL)


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one metadata entry.

    Attributes:
        key: the key of the entry.
        members: the path into an entry that is an object; empty for the entry itself.
        type: the required type of the entry, None for any type. Numbers compare by value across types.
        operator: how to compare the entry with the values.
        values: the values to compare with; more than one only after `in`.
    """

    key: str
    members: tuple[str, ...] = ()
    type: EntryType | None = None
    operator: Operator
    values: tuple[Scalar, ...]


def parse_conditions(texts: Sequence[str], name: str = "where") -> list[Condition]:
    """Parse the conditions in `texts`. An inference must meet all of them.

    Args:
        texts: each is one condition, or several joined by ``and``.
        name: the name of the parameter, for errors.

    Raises:
        InferenceError: when a text does not parse (the error names the position), or there are too many conditions.
    """
    conditions: list[Condition] = []
    for text in texts[: MAX_CONDITIONS + 1]:
        conditions += _Parser(text, name).conditions()
        if len(conditions) > MAX_CONDITIONS:
            break
    if len(conditions) > MAX_CONDITIONS or len(texts) > MAX_CONDITIONS:
        raise invalid(f"Expected at most {MAX_CONDITIONS} conditions, got more", name)
    return conditions


def check_text(text: str, name: str) -> str:
    r"""Return `text` if a store can hold it.

    Raises:
        InferenceError: for ``\0`` and for halves of surrogate pairs, which no store holds.
    """
    if "\0" in text or (not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)):
        raise invalid(
            f"Expected text without zero characters and halves of surrogate pairs, got {quote_value(text)}", name
        )
    return text


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
    | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<word>[^\W\d][\w-]*)
    | (?P<sign>!=|<=|>=|[=<>.:,()\[\]])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}
_INT64 = 2**63


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    position: int


class _Parser:
    """A parser for one text."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        if len(text) > MAX_CHARACTERS:
            raise invalid(f"Expected at most {MAX_CHARACTERS} characters, got {len(text)}", name)
        self._text = check_text(text, name)
        self._tokens = self._tokenize()
        self._index = 0

    def conditions(self) -> list[Condition]:
        parsed = [self._condition()]
        while self._token.kind != "end":
            if self._token.text.lower() != "and" or self._token.kind != "word":
                self._fail("and, or the end")
            self._index += 1
            parsed.append(self._condition())
        return parsed

    def _tokenize(self) -> list[_Token]:
        tokens: list[_Token] = []
        position, end = 0, len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None:
                remainder = self._text[position:].lstrip()
                problem = "Expected a closing quote in" if remainder[0] in "\"'" else "Unexpected text in a condition:"
                raise invalid(f"{problem} {quote_value(remainder)}", self._name)
            kind = match.lastgroup or ""
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            position = match.end()
        return [*tokens, _Token("end", "", len(self._text))]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._index]

    def _accept(self, *texts: str) -> bool:
        """Consume the next token if it is one of these signs, and return whether it was."""
        if self._token.kind == "sign" and self._token.text in texts:
            self._index += 1
            return True
        return False

    def _condition(self) -> Condition:
        names = [self._path_name('a key, such as in camera = "north"')]
        while self._accept("."):
            names.append(self._path_name("the name of a member behind the point"))
        if len(names) > MAX_MEMBERS:
            raise invalid(f"Expected a path of at most {MAX_MEMBERS} names, got {len(names)}", self._name)
        entry_type = self._type(nested=len(names) > 1) if self._accept(":") else None
        operator = self._operator()
        values = self._values(operator)
        for value in values:
            self._check(operator, value, entry_type, nested=len(names) > 1)
        return Condition(key=names[0], members=tuple(names[1:]), type=entry_type, operator=operator, values=values)

    def _path_name(self, expected: str) -> str:
        token = self._token
        if token.kind not in ("word", "text"):
            self._fail(expected)
        self._index += 1
        return token.text if token.kind == "word" else self._unquote(token)

    def _type(self, *, nested: bool) -> EntryType:
        token = self._token
        if token.text not in get_args(EntryType):
            self._fail("the type str, int, float or dict behind the colon")
        if nested:
            raise invalid("A type applies to an entry, not to a member of one", self._name)
        self._index += 1
        return cast("EntryType", token.text)

    def _operator(self) -> Operator:
        token = self._token
        if token.text.lower() not in list(Operator) or token.kind == "text":
            self._fail("one of = != < <= > >= in contains")
        self._index += 1
        return Operator(token.text.lower())

    def _values(self, operator: Operator) -> tuple[Scalar, ...]:
        if operator is not Operator.IN:
            return (self._value(),)
        closing = {"(": ")", "[": "]"}.get(self._token.text)
        if closing is None or not self._accept("(", "["):
            self._fail('values in brackets, such as ("north", "south"),')
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        if not self._accept(closing):
            self._fail(f"a comma or {closing}")
        if len(values) > MAX_VALUES:
            raise invalid(f"Expected at most {MAX_VALUES} values, got {len(values)}", self._name)
        return tuple(values)

    def _value(self) -> Scalar:
        token = self._token
        if token.kind == "text":
            value: Scalar = self._unquote(token)
        elif token.kind == "number":
            value = self._number(token.text)
        elif token.kind == "word" and token.text in ("true", "false"):
            value = token.text == "true"
        else:
            self._fail("a number, a text in quotes, true or false")
        self._index += 1
        return value

    def _number(self, text: str) -> int | float:
        if not text.lstrip("+-").isdigit():
            value = float(text)
            if not math.isfinite(value):
                raise invalid(f"Expected a finite number, got {quote_value(text)}", self._name)
            return value
        if len(text) > len(str(_INT64)) + 1 or not -_INT64 <= int(text) < _INT64:
            raise invalid(f"Expected a whole number of 64 bits, got {quote_value(text)}", self._name)
        return int(text)

    def _unquote(self, token: _Token) -> str:
        def unescape(match: re.Match[str]) -> str:
            escaped = match[1]
            if len(escaped) > 1:
                return chr(int(escaped[1:], 16))
            if escaped not in _ESCAPED:
                raise invalid(f"Expected \\\\ for a backslash in {quote_value(token.text)}", self._name)
            return _ESCAPED[escaped]

        text = _ESCAPE.sub(unescape, token.text[1:-1])
        # As in JSON, a pair of escapes such as \ud83d\ude00 is one character.
        joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return check_text(joined, self._name)

    def _check(self, operator: Operator, value: Scalar, entry_type: EntryType | None, *, nested: bool) -> None:
        if isinstance(value, bool) and (operator in _ORDERED or not nested):
            raise invalid(
                "true and false are members of objects, and are compared by =, != and in: pose.valid = true", self._name
            )
        if operator is Operator.CONTAINS and not nested and not isinstance(value, str):
            raise invalid(f"Expected a text in quotes behind contains, got {quote_value(value)}", self._name)
        if entry_type is None:
            return
        allowed_types: dict[EntryType, tuple[type, ...]] = {
            "str": (str,),
            "int": (int, float),
            "float": (int, float),
            "dict": (),
        }
        if operator is Operator.CONTAINS:
            allowed_types |= {"int": (), "float": (), "dict": (str,)}
        if not isinstance(value, allowed_types[entry_type]):
            raise invalid(f"An entry of type {entry_type} is never {operator} {quote_value(value)}", self._name)

    def _fail(self, expected: str) -> NoReturn:
        token = self._token
        got = "the end" if token.kind == "end" else f"{quote_value(token.text)} at character {token.position + 1}"
        raise invalid(f"Expected {expected}, got {got} of {quote_value(self._text)}", self._name)
