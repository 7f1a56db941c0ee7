"""``charioteer predict``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile
from rich.table import Table

from app.core.cli.model_options import takes_models
from app.core.cli.terminal import console, counted, error_console, printable, prints_to_stderr, reject_unused, table
from app.core.engine.models.servable import Servable
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ModelOptions
from app.inputs import choose_model, predict_records, read_assignments, read_image
from app.plugins.authoring.drawing.image import check_image_path, write_image
from app.plugins.authoring.drawing.image import draw as draw_records
from tasks.image_text_to_text import GroundedAnswer, Grounding, LocatedObject
from tasks.inference.error import InferenceError
from tasks.inference.response import Record
from tasks.vision.image import decode_image

_MAX_SHOWN_NUMBERS = 8
_OPTIONS = {
    "prompts": "--prompt",
    "candidate_labels": "--candidate-labels",
    "top_k": "--top-k",
    "iou_threshold": "--iou-threshold",
}
"""The option of each parameter."""


@takes_models
def predict(
    image: ExistingFile,
    *,
    name: str | None = None,
    prompt: list[str] | None = None,
    candidate_labels: list[str] | None = None,
    top_k: int | None = None,
    iou_threshold: float | None = None,
    parameter: list[str] | None = None,
    draw: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    options: ModelOptions = ModelOptions(),  # noqa: B008
    images: ImageSettings = ImageSettings(),  # noqa: B008
) -> None:
    """Run a model on one image, without a server.

    Args:
        image: Image file.
        name: Which model, if there are several.
        prompt: Question, for models that answer questions; may be repeated.
        candidate_labels: Class to look for, for zero-shot models; repeat it for each class.
        top_k: Maximum number of results.
        iou_threshold: Drop the lower-scored of two boxes of a class whose overlap (IoU) is higher.
        parameter: Another parameter of the request, "name=value"; may be repeated.
        draw: Write the image with the results drawn on it to this file.
        json: Print the records as JSON instead of a table.
        options: Which models.
        images: Limits on the image.
    """
    terminal = console()
    if draw is not None:
        check_image_path(draw)
    source = choose_model(options, name)
    limits = image_limits(images)
    data = read_image(image, limits)
    parameters: dict[str, object] = {
        "prompts": prompt,
        "candidate_labels": candidate_labels,
        "top_k": top_k,
        "iou_threshold": iou_threshold,
    }
    with error_console().status(f"Running {printable(source.name)}"), prints_to_stderr():
        servable = _load(source, draws=draw is not None)
        known = servable.parameter_names
        unknown = {_OPTIONS[name]: value for name, value in parameters.items() if name not in known}
        reject_unused(f"on a model of {servable.description.task_type}; leave it out", unknown)
        parameters |= read_assignments(parameter or ())
        try:
            records = predict_records(servable, source.name, data, parameters, limits)
        except InferenceError as error:
            field = error.path.removeprefix("inputs[0].parameters.").partition("[")[0]
            option = _OPTIONS.get(field, f"--parameter {field}" if field in parameters else image.name)
            raise InferenceError(error.kind, error.message, error.path and option) from None
    located = _located(records)
    if json:
        terminal.print_json(msgspec.json.encode(records).decode())
    elif records:
        terminal.print(_table(f"{source.name}: {len(records)} found", records))
        for kind in dict.fromkeys(map(type, located)):
            places = [place for place in located if type(place) is kind]
            terminal.print(_table(f"{source.name}: {len(places)} located", places))
    else:
        terminal.print(f"{printable(source.name)}: nothing found")
    if draw is not None:
        geometry = "box" if located else servable.description.task_type.geometry
        pixels = decode_image(data).pixels
        write_image(draw, draw_records(pixels, located or records, geometry, servable.description.labels))
        error_console().print(f"Wrote {printable(draw)}")


def _load(source: ModelSource, *, draws: bool) -> Servable:
    from app.core.assembly.models import load

    servable = load(source)
    task_type, takes = servable.description.task_type, servable.description.takes
    if takes not in ("image", "question"):
        raise ModelError(f"{source.name}: predict sends an image; a model of {task_type} takes a {takes}")
    if draws and task_type.returns == "tensors":
        raise ModelError(f"{source.name}: --draw cannot draw the tensors of a model of {task_type}")
    return servable


def _located(records: Sequence[Record]) -> Sequence[LocatedObject]:
    """Return the objects that answers locate in the image."""
    groundings = [record.grounding for record in records if isinstance(record, GroundedAnswer)]
    return [place for found in groundings if isinstance(found, Grounding) for place in found.objects]


def _table(title: str, records: Sequence[Record]) -> Table:
    columns = [name for name in records[0].__struct_fields__ if name != "grounding"]
    found = table(*columns, title=title)
    for record in records:
        found.add_row(*(_cell(getattr(record, name)) for name in columns))
    return found


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1 else f"{value:.1f}"
    if isinstance(value, list):
        return printable(_list_cell(cast("list[object]", value)))
    return printable(value)


def _list_cell(values: list[object]) -> str:
    if values and isinstance(values[0], list):
        lists = cast("list[list[object]]", values)
        if lists[0] and isinstance(lists[0][0], float):
            return f"{len(lists)} points"
        return f"{counted(len(lists), 'contour')}, {sum(map(len, lists))} points"
    dots = ", ..." if len(values) > _MAX_SHOWN_NUMBERS else ""
    return ", ".join(map(str, values[:_MAX_SHOWN_NUMBERS])) + dots
