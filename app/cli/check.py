"""``charioteer check``."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from app.cli.terminal import console
from app.engine.description import ModelDescription, Origin
from app.settings.model import ModelError, ModelSource

__all__ = ("check",)


def check(path: Annotated[Path, Parameter(help="A model file, a model's folder, or a repository of them.")]) -> None:
    """Say how a model is understood, and what was guessed; fail with a sentence when it cannot be served.

    Args:
        path: the model.
    """
    from app.assembly.discovery import discover
    from app.assembly.models import describe, load

    printed, failures = console(), 0
    for source in discover(path):
        try:
            description = describe(source)
            load(source)
        except ModelError as error:
            failures += 1
            printed.print(f"[red]{escape(source.name)} {source.version} cannot be served[/red]: {escape(str(error))}")
            continue
        printed.print(_table(source, description))
        guessed = [fact.topic for fact in description.facts if fact.origin is Origin.GUESSED]
        if guessed:
            advice = "declare it in model-settings.json if it is wrong"
            printed.print(f"[yellow]Guessed: {', '.join(guessed)}[/yellow]; {advice}.")
    if failures:
        sys.exit(1)


def _table(source: ModelSource, description: ModelDescription) -> Table:
    table = Table(
        "what", "understood as", "from", title=f"{escape(source.name)} {source.version}", title_justify="left"
    )
    for fact in description.facts:
        table.add_row(fact.topic, escape(fact.value), fact.origin)
    for heading, specs in (("input", description.inputs), ("output", description.outputs)):
        for spec in specs:
            table.add_row(heading, escape(f"{spec.name} {spec.datatype} {list(spec.shape)}"), Origin.MODEL_FILE)
    return table
