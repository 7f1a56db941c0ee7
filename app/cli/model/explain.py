"""``charioteer explain``."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from cyclopts import Parameter
from cyclopts.types import ExistingFile, NonNegativeInt, PositiveFloat, PositiveInt
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.model.model_choice import choose_model
from app.cli.terminal import console, progress
from app.settings.model import ModelError, ModelSource
from app.settings.server import ModelOptions
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor
from tasks.saliency.explanation import Explanation, ExplanationMethod
from tasks.task import Geometry
from tasks.vision.image import decode_image

__all__ = ("explain",)

_DEFAULT_OBJECTS = 10
_MAX_OBJECTS = 100
"""The maximum that `ExplanationParameters` accepts."""
_Explained = tuple[Geometry | None, Sequence[Explanation]]


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
    json: Annotated[bool, Parameter(negative="")] = False,
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """Show which parts of an image led to a model's prediction.

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
        json: Print the objects and the peaks of their heat maps as JSON instead of a table.
        options: Which models.
    """
    terminal = console()
    if draw is not None:
        from app.cli.model.drawing import check_image_path

        check_image_path(draw)
    source = choose_model(options, name)
    data = image.read_bytes()
    parameters = {
        "label": label,
        "method": method,
        "samples": samples,
        "grid": grid,
        "seed": seed,
        "max_seconds": max_seconds,
        "max_objects": max(_DEFAULT_OBJECTS, object),
    }
    geometry, explanations = _explanations(
        source,
        data,
        {key: value for key, value in parameters.items() if value is not None},
        {} if candidate_labels is None else {"candidate_labels": candidate_labels},
    )
    if json:
        terminal.print_json(msgspec.json.encode([_summary(explanation) for explanation in explanations]).decode())
    elif explanations:
        terminal.print(_table(source, explanations))
    else:
        terminal.print(f"{escape(source.name)}: no objects to explain")
    if draw is not None and explanations:
        if object > len(explanations):
            raise ModelError(f"Cannot draw object {object}: the model found only {len(explanations)}")
        _write(draw, data, explanations[object - 1], geometry)
        Console(stderr=True).print(f"Wrote {escape(str(draw))}: {escape(explanations[object - 1].label)}")


def _explanations(
    source: ModelSource, data: bytes, parameters: Mapping[str, object], of_image: Mapping[str, object]
) -> _Explained:
    from app.assembly.models import load
    from app.engine.explain import explain_request
    from app.wire.bytes_elements import BinaryElement

    tensor = BytesTensor(name="image", shape=(1,), elements=[BinaryElement(data)], parameters=of_image)
    request = InferenceRequest(id="explain", model_name=source.name, inputs=(tensor,), parameters=parameters)
    limits = Limits(max_explanation_samples=10**9, max_explanation_seconds=10.0**9)
    with Console(stderr=True).status(f"Loading {escape(source.name)}"):
        servable = load(source)
    with ExitStack() as stack:
        advance: Callable[[int], None] | None = None

        def show(samples: int, total: int) -> None:
            nonlocal advance
            advance = advance or stack.enter_context(progress(f"Explaining {escape(source.name)}", total))
            advance(samples)

        result = explain_request(servable, request, limits, lambda: True, on_samples=show)
    explanations = result.explanations[0][0]
    return servable.description.task_type.geometry, explanations


def _summary(explanation: Explanation) -> dict[str, object]:
    y, x = np.unravel_index(int(explanation.saliency.argmax()), (explanation.height, explanation.width))
    return {
        "label": explanation.label,
        "score": explanation.score,
        "peak": {"x": int(x), "y": int(y)},
        "method": explanation.method,
        "samples": explanation.samples,
    }


def _table(source: ModelSource, explanations: Sequence[Explanation]) -> Table:
    first = explanations[0]
    title = f"{escape(source.name)}: {len(explanations)} explained with {first.samples} samples ({first.method})"
    table = Table("label", "score", "peak", title=title, title_justify="left")
    for explanation in explanations:
        y, x = np.unravel_index(int(explanation.saliency.argmax()), (explanation.height, explanation.width))
        table.add_row(escape(explanation.label), f"{explanation.score:.4g}", f"x {x}, y {y}")
    return table


def _write(path: Path, data: bytes, explanation: Explanation, geometry: Geometry | None) -> None:
    from app.cli.model.drawing import draw, overlay_heat_map, write_image

    overlay = overlay_heat_map(decode_image(data).pixels, explanation.saliency)
    write_image(path, draw(overlay, [explanation.record], geometry, filled=False))
