"""``charioteer config`` and ``charioteer env-schema``: the options of ``charioteer serve``."""

import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec
from cyclopts import App, Argument, ArgumentCollection, Parameter
from cyclopts.validators import Number

from app import __version__
from app.core.cli.serve import read_config_file, serve, unknown_variables
from app.core.cli.terminal import console, printable, table
from app.core.settings.environment import check_values, drop_empty_variables
from app.core.settings.network import DefaultPort

_SECRET = ("record",)
"""Options whose URLs may contain a password or a token."""

_TYPES: Mapping[object, str] = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}


def config(
    *options: Annotated[str, Parameter(allow_leading_hyphen=True)],
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> None:
    """Show the options of `charioteer serve` that are set, and where their values come from.

    An option on the command line overrides its environment variable, which overrides the file of `--config`, which
    overrides the default.

    Args:
        options: Options of `serve`, such as --config charioteer.toml.
        everything: Also show options that have their default.
    """
    arguments = ArgumentCollection()

    def collect(_: App, __: tuple[str, ...], collection: ArgumentCollection) -> None:
        arguments.extend(argument for argument in collection if not argument.children)

    sources = (drop_empty_variables, read_config_file, check_values, collect)
    parser = App(name="charioteer config", config=sources, help_flags=[], version_flags=[])
    parser.default(serve)
    _, bound, _ = parser.parse_args(options, exit_on_error=False, print_error=False)
    values, parts = dict(bound.arguments), list(bound.arguments.values())
    for part in parts:
        fields = getattr(part, "__dict__", {})
        values |= fields
        # The options of plugins are one level deeper.
        parts += fields.values()
    shown = table("option", "value", "from", "environment variable")
    for argument in arguments:
        if (everything and argument.parameter.show is not False) or argument.tokens:
            field, names = argument.field_info.name, argument.parameter.env_var or ()
            value = values.get(field, argument.field_info.default)
            cells = argument.name, _shown(field, value), _source(argument), ", ".join(names)
            shown.add_row(*map(printable, cells))
    terminal = console()
    if shown.row_count:
        terminal.print(shown)
    else:
        terminal.print("No option of `charioteer serve` is set, so all have their defaults; --all shows them.")
    for variable, advice in unknown_variables(arguments):
        hint = f"; {advice}" if advice else ""
        terminal.print(f"[yellow]{printable(variable)} is not an environment variable of Charioteer[/yellow]{hint}")


def _shown(name: str, value: object) -> str:
    text = "" if value is None else str(value)
    scheme, separator, _ = text.partition("://")
    return f"{scheme}://..." if separator and (name in _SECRET or "@" in text) else text


def _source(argument: Argument) -> str:
    if not argument.tokens:
        return "default"
    token = argument.tokens[0]
    return {"cli": "command line", "env": token.keyword}.get(token.source) or token.source


def env_schema() -> None:
    """Print a JSON Schema of every environment variable that `charioteer serve` reads."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(environment_schema()), indent=2).decode() + "\n")


def environment_schema() -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) of the environment, one property for each variable name.

    The schema is generated from the command line's options, so the two cannot differ. A variable's first name has the
    schema. Its other names, which apply when the first is absent, refer to it. Values have the types that they are
    parsed as, although every environment variable is text.
    """
    command = App()
    command.default(serve)
    properties: dict[str, Any] = {}
    for argument in command.assemble_argument_collection(parse_docstring=True):
        if argument.parameter.show is not False and (names := tuple(argument.parameter.env_var or ())):
            properties[names[0]] = _variable(argument, names)
            description = f"Another name for {names[0]}, used when {names[0]} is not set."
            alias = {"description": description, "$ref": f"#/properties/{names[0]}"}
            properties |= dict.fromkeys(names[1:], alias)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Environment of charioteer {__version__}",
        "type": "object",
        "properties": properties,
    }


def _variable(argument: Argument, names: tuple[str, ...]) -> dict[str, Any]:
    schema = {"description": argument.parameter.help, **_type(argument.hint), **_bounds(argument)}
    default = argument.field_info.default
    if default is not None:
        schema["default"] = int(default) if isinstance(default, DefaultPort) else default
    if len(names) > 1:
        schema["x-aliases"] = list(names[1:])
    return schema


def _type(hint: object) -> dict[str, Any]:
    if get_origin(hint) in (Union, types.UnionType):
        # Drop None from the type of an optional setting: an environment variable is never null.
        (hint,) = (member for member in get_args(hint) if member is not type(None))
    if get_origin(hint) is Literal:
        values = get_args(hint)
        return {"type": _TYPES[type(values[0])], "enum": list(values)}
    return {"type": _TYPES[hint]}


def _bounds(argument: Argument) -> dict[str, Any]:
    keywords = {"gte": "minimum", "gt": "exclusiveMinimum", "lte": "maximum", "lt": "exclusiveMaximum"}
    schema: dict[str, Any] = {}
    for validator in cast("Iterable[object]", argument.parameter.validator or ()):
        if isinstance(validator, Number):
            bounds = {keyword: getattr(validator, name) for name, keyword in keywords.items()}
            schema |= {keyword: bound for keyword, bound in bounds.items() if bound is not None}
    return schema
