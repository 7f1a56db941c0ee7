"""``charioteer models``."""

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from app.cli.terminal import console
from app.settings.model import ModelError
from app.settings.server import ModelOptions

__all__ = ("models",)


def models(options: ModelOptions = ModelOptions()) -> None:  # noqa: B008
    """List the models that `serve` would load.

    Args:
        options: which models.
    """
    from app.assembly.models import describe, find_models

    table = Table("model", "version", "task type", "layout", "labels", "Chariot path")
    terminal = console()
    sources = find_models(options)
    for source in track(
        sources, "Reading models", console=Console(stderr=True), transient=True, disable=len(sources) < 10
    ):
        path = f"/v2/models/m-{(source.settings.chariot_id or source.name).lower()}/infer"
        try:
            description = describe(source)
        except ModelError as error:
            failure = "[red]cannot be served[/red]"
            table.add_row(escape(source.name), source.version, failure, escape(str(error)), "", escape(path))
            continue
        labels = str(len(description.labels)) if description.labels else "-"
        table.add_row(
            escape(source.name), source.version, description.task_type, escape(description.layout), labels, escape(path)
        )
    terminal.print(table)
