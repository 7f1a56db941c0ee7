"""``charioteer env-schema``."""

import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin

import msgspec
from cyclopts import App, Argument
from cyclopts.validators import Number

from app import __version__
from app.cli.serve import serve

__all__ = ("env_schema", "environment_schema")

_TYPES: Mapping[object, str] = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}


def env_schema() -> None:
    """Print a JSON Schema of every environment variable that `charioteer serve` reads."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(environment_schema()), indent=2).decode() + "\n")


def environment_schema() -> dict[str, Any]:
    """A JSON Schema (draft 2020-12) of the environment, one property for each name that a variable has.

    It is made of what the command line is made of, so the two cannot differ. A variable's first name carries the schema
    and its other names, which are read when the first is absent, refer to it. Values have the types that they are read
    as, though an environment holds nothing but text.
    """
    command = App()
    command.default(serve)
    properties: dict[str, Any] = {}
    for argument in command.assemble_argument_collection(parse_docstring=True):
        names = tuple(argument.parameter.env_var or ())
        for place, name in enumerate(names):
            properties[name] = _alias(names[0]) if place else _variable(argument, names)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Environment of charioteer {__version__}",
        "type": "object",
        "properties": properties,
    }


def _variable(argument: Argument, names: tuple[str, ...]) -> dict[str, Any]:
    described = {"description": argument.parameter.help, **_type(argument.hint), **_bounds(argument)}
    default = argument.field_info.default
    if default is not None:
        described["default"] = default
    if len(names) > 1:
        described["x-aliases"] = list(names[1:])
    return described


def _alias(name: str) -> dict[str, str]:
    return {"description": f"Another name of {name}, read when that is absent.", "$ref": f"#/properties/{name}"}


def _type(hint: object) -> dict[str, Any]:
    if get_origin(hint) in (Union, types.UnionType):
        # An option that may be absent: so may its variable, and nothing that an environment holds is null.
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    return {"type": _TYPES[hint]}


def _bounds(argument: Argument) -> dict[str, Any]:
    keywords = {"gte": "minimum", "gt": "exclusiveMinimum", "lte": "maximum", "lt": "exclusiveMaximum"}
    found: dict[str, Any] = {}
    for validator in cast("Iterable[object]", argument.parameter.validator or ()):
        if isinstance(validator, Number):
            bounds = {keyword: getattr(validator, name) for name, keyword in keywords.items()}
            found |= {keyword: bound for keyword, bound in bounds.items() if bound is not None}
    return found
