"""``charioteer config``."""

from typing import Annotated

from cyclopts import App, Argument, ArgumentCollection, Parameter
from rich.markup import escape

from app.cli.serve import serve
from app.cli.serve_options import read_config_file, unknown_variables
from app.cli.terminal import console, table

_SECRET = ("record", "drift_webhook")
"""Options whose URLs may contain a password or a token."""


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

    parser = App(name="charioteer config", config=(read_config_file, collect), help_flags=[], version_flags=[])
    parser.default(serve)
    _, bound, _ = parser.parse_args(options)
    values = dict(bound.arguments)
    for part in bound.arguments.values():
        values |= getattr(part, "__dict__", {})
    shown = table("option", "value", "from", "environment variable")
    for argument in arguments:
        if everything or argument.tokens:
            field, names = argument.field_info.name, argument.parameter.env_var or ()
            value = values.get(field, argument.field_info.default)
            shown.add_row(argument.name, escape(_shown(field, value)), escape(_source(argument)), ", ".join(names))
    terminal = console()
    terminal.print(shown)
    for variable, nearest in unknown_variables(arguments):
        hint = f"; did you mean {nearest}?" if nearest else ""
        terminal.print(f"[yellow]{escape(variable)} is not an environment variable of Charioteer[/yellow]{hint}")


def _shown(name: str, value: object) -> str:
    text = "" if value is None else str(value)
    scheme, separator, _ = text.partition("://")
    return f"{scheme}://..." if name in _SECRET and separator else text


def _source(argument: Argument) -> str:
    if not argument.tokens:
        return "default"
    token = argument.tokens[0]
    return {"cli": "command line", "env": token.keyword}.get(token.source) or token.source
