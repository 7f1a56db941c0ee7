"""``charioteer explain``."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile, NonNegativeInt, PositiveFloat, PositiveInt
from cyclopts.validators import Number
from rich.table import Table

from app.core.cli.model_options import takes_models
from app.core.cli.terminal import console, error_console, printable, prints_to_stderr, progress, table
from app.core.engine.models.servable import Servable
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ModelOptions
from app.inputs import choose_model, input_tensor, read_image
from app.plugins.authoring.drawing.image import check_image_path, overlay_heat_map, write_image
from app.plugins.authoring.drawing.image import draw as draw_records
from app.plugins.explanations.explainer import explainer_of
from app.plugins.explanations.pixels import Explanation, ExplanationMethod
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor
from tasks.vision.image import decode_image

# Its first import ignores a Ctrl-C, which would be lost while the first image is explained.
import_module("numpy.random")

_DEFAULT_OBJECTS = 10
_MAX_OBJECTS = 100
"""The maximum that `ExplanationParameters` accepts."""


@takes_models
def explain(
    image: ExistingFile,
    *,
    name: str | None = None,
    label: str | None = None,
    candidate_labels: list[str] | None = None,
    method: ExplanationMethod = ExplanationMethod.RISE,
    samples: PositiveInt | None = None,
    grid: PositiveInt | None = None,
    seed: NonNegativeInt = 0,
    max_seconds: PositiveFloat | None = None,
    object: Annotated[int, Parameter(validator=Number(gte=1, lte=_MAX_OBJECTS))] = 1,  # noqa: A002
    draw: Path | None = None,
    options: ModelOptions = ModelOptions(),  # noqa: B008
    images: ImageSettings = ImageSettings(),  # noqa: B008
) -> None:
    """Show which parts of an image led to a model's prediction.

    A model with a method of its own for explanations prints what that method returns, as JSON.

    Args:
        image: Image file.
        name: Which model, if there are several.
        label: Class to explain; by default, the best class, or every object.
        candidate_labels: Class to look for, for zero-shot models; repeat it for each class.
        method: Random masks (rise), or a sliding window (occlusion).
        samples: Number of masked images to run the model on.
        grid: Cells of a mask along the longer side.
        seed: Seed of the random masks.
        max_seconds: Stop after this time, and use the samples so far.
        object: Which object to draw; 1 is the one with the highest score.
        draw: Write the image with the heat map to this file.
        options: Which models.
        images: Limits on the image.
    """
    terminal = console()
    if draw is not None:
        check_image_path(draw)
    limits = image_limits(images)
    data = read_image(image, limits)
    source = choose_model(options, name)
    parameters = {
        "label": label,
        "method": method,
        "samples": samples,
        "grid": grid,
        "seed": seed,
        "max_seconds": max_seconds,
        "max_objects": max(_DEFAULT_OBJECTS, object),
    }
    tensor = input_tensor(data, {"candidate_labels": candidate_labels})
    servable, explanations = _explain(source, tensor, parameters, limits, draws=draw is not None)
    if explainer_of(servable) == "model":
        terminal.print_json(msgspec.json.encode(explanations).decode())
        return
    if not explanations:
        terminal.print(f"{printable(source.name)}: no objects to explain")
    else:
        terminal.print(_table(source, explanations))
    if draw is not None and explanations:
        if object > len(explanations):
            raise ModelError(f"Cannot draw object {object}: the model found only {len(explanations)}")
        drawn: Explanation = explanations[object - 1]
        overlay, description = overlay_heat_map(decode_image(data).pixels, drawn.saliency), servable.description
        geometry = description.task_type.geometry
        write_image(draw, draw_records(overlay, [drawn.record], geometry, description.labels, filled=False))
        error_console().print(f"Wrote {printable(draw)}: {printable(drawn.label)}")


def _check_takes(source: ModelSource, servable: Servable, *, draws: bool) -> None:
    """Reject a model that takes no image, or a heat map that does not exist."""
    takes = servable.description.takes
    if takes in ("tensor", "text"):
        raise ModelError(f"{source.name} takes a {takes}, not an image; explain its answers with :explain of KServe V1")
    if draws and explainer_of(servable) not in ("pixels", None):
        raise ModelError(f"{source.name}: --draw draws a heat map, which explanations of this model do not have")


def _explain(
    source: ModelSource, tensor: BytesTensor, parameters: Mapping[str, object], limits: Limits, *, draws: bool
) -> tuple[Servable, Any]:
    from app.core.assembly.models import load
    from app.plugins.explanations.request import explain_request

    parameters = {name: value for name, value in parameters.items() if value is not None}
    request = InferenceRequest(id="explain", model_name=source.name, inputs=(tensor,), parameters=parameters)
    limits = msgspec.structs.replace(limits, max_explanation_samples=10**9, max_explanation_seconds=10.0**9)
    with error_console().status(f"Loading {printable(source.name)}"), prints_to_stderr():
        servable = load(source)
    _check_takes(source, servable, draws=draws)
    with progress(f"Explaining {source.name}") as bar, prints_to_stderr():
        try:
            result = explain_request(servable, request, limits, lambda: True, on_samples=bar.advance)
        except InferenceError as error:
            _, is_parameter, field = error.path.rpartition("parameters.")
            option = f"--{field.partition('[')[0].replace('_', '-')}" if is_parameter else ""
            raise InferenceError(error.kind, error.message, option) from None
    return servable, result.explanations[0]


def _table(source: ModelSource, explanations: Sequence[Explanation]) -> Table:
    first = explanations[0]
    title = f"{source.name}: {len(explanations)} explained with {first.samples} samples ({first.method})"
    peaks = table("label", "score", "peak", title=title)
    for explanation in explanations:
        y, x = divmod(int(explanation.saliency.argmax()), explanation.width)
        peaks.add_row(printable(explanation.label), f"{explanation.score:.4g}", f"x {x}, y {y}")
    return peaks
