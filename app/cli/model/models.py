"""``charioteer models``."""

from rich.markup import escape

from app.cli.terminal import console, progress, table
from app.settings.model import ModelError
from app.settings.server import ModelOptions


def models(options: ModelOptions = ModelOptions()) -> None:  # noqa: B008
    """List the models that `serve` would load.

    Args:
        options: which models.
    """
    from app.assembly.models import describe, find_models

    listing = table("model", "version", "task type", "layout", "labels", "Chariot path")
    listing.columns[0].no_wrap = True
    terminal = console()
    sources = find_models(options)
    with progress("Reading models", len(sources)) as bar:
        for source in sources:
            cells = [escape(source.name), source.version]
            path = escape(f"/v2/models/m-{(source.settings.chariot_id or source.name).lower()}/infer")
            try:
                description = describe(source)
                labels = str(len(description.labels)) if description.labels else "-"
                listing.add_row(*cells, description.task_type, escape(description.layout), labels, path)
            except ModelError as error:
                listing.add_row(*cells, "[red]cannot be served[/red]", escape(str(error)), "", path)
            bar.advance()
    terminal.print(listing)
