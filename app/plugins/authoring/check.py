"""``charioteer check`` and ``charioteer models``."""

import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from cyclopts import Parameter
from cyclopts.types import ExistingFile
from rich.table import Table

from app.core.cli.model_options import MODEL_PATH, takes_models, with_path
from app.core.cli.terminal import console, counted, printable, progress, table
from app.core.engine.models.repository import chariot_name_warning
from app.core.engine.models.servable import Servable
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ModelOptions
from app.inputs import predict_records, read_image
from app.samples import SAMPLE_TEXT, sample_image
from metadata.model import ModelMetadata, Origin
from tasks.inference.error import InferenceError, truncate
from tasks.inference.limits import Limits
from tasks.text_generation import TEXT_INPUT
from tasks.vision.image import decode_image
from tasks.vision.request import IMAGE_INPUT

_MAX_SHOWN_CHARACTERS = 120
_MIN_NAME_WIDTH = 24
_MAX_FRACTION = 1.5
"""Pixels: boxes that are fractions may reach a little over the image."""
_CANDIDATES = ("red square", "blue circle")
"""The shapes of `sample_image`, for models whose requests name the classes."""
_SERIAL_MILLISECONDS = 0.7
"""Of a request, under the lock of Python: docs/deployment.md has the table of processes."""


def check(
    path: Annotated[Path, Parameter(help="A model file, a model's folder, or a repository of them.")],
    *,
    image: ExistingFile | None = None,
    allow_code: Annotated[bool, Parameter(env_var="CHARIOTEER_ALLOW_CODE", negative="")] = False,
    require_manifest: Annotated[bool, Parameter(env_var="CHARIOTEER_REQUIRE_MANIFEST", negative="")] = False,
    model_links: Annotated[str | None, Parameter(env_var="CHARIOTEER_MODEL_LINKS")] = None,
    model_signing_key: Annotated[ExistingFile | None, Parameter(env_var="CHARIOTEER_MODEL_SIGNING_KEY")] = None,
    images: ImageSettings = ImageSettings(),  # noqa: B008
) -> None:
    """Show how a model is interpreted and which facts were guessed, then try it on one image or text.

    Exits with 1 when a model cannot be served, or its trial request fails.

    Args:
        path: the model.
        image: Image to try the model on; drawn shapes by default.
        allow_code: Whether to allow models that are Python classes. Their code then runs here.
        require_manifest: Whether to reject models whose files are not all listed in a model.sha256.
        model_links: Folders, separated by commas, that links in model folders may lead to.
        model_signing_key: File of public keys (PEM). One of them must have signed the model.sha256.
        images: Limits on the image.
    """
    from app.core.assembly.models import find_models, load

    # NumPy warns about values that are not finite, which the answers and errors of the models cover.
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    limits = image_limits(images)
    image_data = read_image(image, limits) if image else sample_image()
    terminal, failures = console(), 0
    # Without hard wraps, the text of a line can be searched for.
    write_line = partial(terminal.print, soft_wrap=True)

    def warn(warning: str) -> None:
        if warning:
            write_line(f"[yellow]{printable(warning)}[/yellow].")

    options = ModelOptions(
        model_dir=path,
        allow_code=allow_code,
        require_manifest=require_manifest,
        model_signing_key=model_signing_key,
        model_links=model_links,
    )
    for source in find_models(options):
        label = printable(f"{source.name} {source.version}")
        try:
            servable = load(source)
        except ModelError as error:
            failures += 1
            write_line(f"[red]{label} cannot be served[/red]: {printable(error)}")
            continue
        terminal.print(_table(source, servable.description))
        warn(chariot_name_warning(source.name))
        if source.imported is not None:
            write_line(f"Settings from {source.imported.file}: {', '.join(source.imported.settings)}.")
            if source.imported.ignored:
                ignored = printable(", ".join(source.imported.ignored))
                write_line(f"[yellow]No effect here: {ignored}[/yellow], in {source.imported.file}.")
        if guessed := [fact.topic for fact in servable.description.facts if fact.origin is Origin.GUESSED]:
            advice = "declare it in model-settings.json if it is wrong"
            terminal.print(f"[yellow]Guessed: {', '.join(guessed)}[/yellow]; {advice}.")
        try:
            servable.check_parameters(source.settings.parameters)
        except InferenceError as error:
            warn(f"No effect in model-settings.json: {error.with_prefix('parameters')}")
        try:
            result, warning = _try_on_sample(source, servable, image_data, limits)
            write_line(result)
            warn(warning)
        except InferenceError as error:
            failures += 1
            write_line(f"[red]{label} cannot answer[/red]: {printable(error)}")
    if failures:
        sys.exit(1)


def _try_on_sample(source: ModelSource, servable: Servable, image_data: bytes, limits: Limits) -> tuple[str, str]:
    """Run the model on one image or text, and return a line that describes the result, and a warning or ""."""
    parameters: dict[str, object] = {}
    if servable.description.open_vocabulary and "candidate_labels" not in source.settings.parameters:
        parameters["candidate_labels"] = _CANDIDATES
    match tuple(servable.inputs):
        case (spec,) if spec == IMAGE_INPUT:
            data = image_data
            input_kind = f"image with the candidate labels {', '.join(_CANDIDATES)}" if parameters else "image"
        case (spec,) if spec == TEXT_INPUT:
            data, parameters, input_kind = SAMPLE_TEXT, {}, "text"
        case _:
            return "Not tried: the model takes neither one image nor one text.", ""
    started = time.perf_counter()
    records = predict_records(servable, source.name, data, parameters, limits)
    milliseconds = (time.perf_counter() - started) * 1000
    first = truncate(msgspec.json.encode(records[0]).decode(), _MAX_SHOWN_CHARACTERS) if records else "no results"
    result = (
        f"Tried on one {input_kind}, {counted(len(records), 'result')} in {milliseconds:.0f} ms: {printable(first)}"
    )
    if isinstance(data, bytes):
        # One more request is enough for a slow model.
        tries = 3 if milliseconds < 1000 else 1
        result += _processor_time(lambda: predict_records(servable, source.name, data, parameters, limits), tries)
    if isinstance(data, str) or parameters or servable.description.task_type.geometry is None:
        return result, ""
    shapes = records or predict_records(servable, source.name, data, {"score_threshold": 0.0}, limits)
    return result, _wrong_unit(shapes, data)


def _processor_time(predict: Callable[[], object], tries: int) -> str:
    """Return a line about the CPU time of a request, without the first one: its memory is new."""
    started = time.process_time()
    for _ in range(tries):
        predict()
    milliseconds = (time.process_time() - started) * 1000 / tries
    cores = max(1, round(milliseconds / _SERIAL_MILLISECONDS))
    return (
        f"\nA request takes about {milliseconds:.1f} ms of CPU: one process keeps up to {counted(cores, 'core')} busy."
    )


def _wrong_unit(records: Sequence[Any], image: bytes) -> str:
    """Return a sentence about objects whose numbers are probably fractions of the image, or degrees; "" if not."""
    height, width = decode_image(image).pixels.shape[:2]
    rings = [ring for record in records for ring in record.rings(width, height)]
    if rings and np.abs(np.concatenate(rings)).max() <= _MAX_FRACTION:
        advice = "multiply them by the width and height of the image in a Python class"
        return f"All objects lie within the first pixel, so their numbers are probably fractions; {advice}"
    if any(abs(getattr(record, "r", 0.0)) > 2 * math.pi for record in records):
        return "Boxes are rotated by more than a whole turn, so their angles are probably degrees; expected radians"
    return ""


def _table(source: ModelSource, description: ModelMetadata) -> Table:
    facts = table("what", "understood as", "from", title=f"{source.name} {source.version}")
    for fact in description.facts:
        facts.add_row(fact.topic, printable(fact.value), fact.origin)
    declared_by = Origin.CLASS if description.platform == "python" else Origin.MODEL_FILE
    for heading, specs in (("input", description.inputs), ("output", description.outputs)):
        for spec in specs:
            facts.add_row(heading, printable(f"{spec.name} {spec.datatype} {list(spec.shape)}"), declared_by)
    return facts


@takes_models
def models(
    path: Annotated[Path | None, MODEL_PATH] = None,
    /,
    options: ModelOptions = ModelOptions(),  # noqa: B008
) -> None:
    """List the models that `serve` would load."""
    from app.core.assembly.models import describe, find_models

    listing = table("model", "version", "task type", "layout", "labels", "Chariot path")
    terminal = console()
    sources = find_models(with_path(options, path))
    # Long names may take several lines, so that the other columns keep some room.
    listing.columns[0].min_width = min(_MIN_NAME_WIDTH, max(len(source.name) for source in sources))
    with progress("Reading models", len(sources)) as bar:
        for source in sources:
            cells = [printable(source.name), printable(source.version)]
            chariot_path = printable(f"/v2/models/m-{(source.settings.chariot_id or source.name).lower()}/infer")
            try:
                description = describe(source)
                labels = str(len(description.labels)) if description.labels else "-"
                listing.add_row(*cells, description.task_type, printable(description.layout), labels, chariot_path)
            except ModelError as error:
                listing.add_row(*cells, "[red]cannot be served[/red]", printable(error), "", chariot_path)
            bar.advance()
    terminal.print(listing)
