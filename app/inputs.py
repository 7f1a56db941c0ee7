"""Choose the model and the images that a command runs on, and run it on one of them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from app.core.engine.error_text import list_choices
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ModelOptions, SettingsError
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import Record
from tasks.inference.tensor import BytesTensor
from tasks.vision.header import image_size
from tasks.vision.image import check_size

_DEFAULT_LIMITS = Limits()
IMAGE_ENDINGS = frozenset(
    {".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff", ".webp"}
    # Not readable, but reported instead of left out.
    | {".heic", ".heif"}
)


def list_images(folder: Path) -> list[Path]:
    """Return the image files under `folder`, sorted by name, except in hidden folders."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in IMAGE_ENDINGS
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def read_image(file: Path, limits: Limits) -> bytes:
    """Return the content of an image file.

    Raise ModelError when it is not an image of an accepted format, or too large.
    """
    data = file.read_bytes()
    try:
        size = image_size(data, allow_avif_jpeg2000=limits.allow_avif_jpeg2000)
        check_size(*size, limits.max_pixels, limits.max_image_side)
    except InferenceError as error:
        formats = re.match(r"Expected an encoded image \((.*?)\)", error.message)
        text = f"{file} is not an image. Supported: {formats[1]}" if formats else f"{file}: {error}"
        raise ModelError(text) from None
    return data


def choose_model(options: ModelOptions, name: str | None) -> ModelSource:
    """Return the latest version of the model called `name`, or of the only model.

    Raise ModelError when there is no such model, or several models match.
    """
    from app.core.assembly.discovery import latest_version
    from app.core.assembly.models import find_models

    sources = find_models(options)
    matches = [source for source in sources if name in (None, source.name)]
    names = sorted({source.name for source in sources})
    if not matches:
        raise ModelError(f"There is no model {name!r}; there are {list_choices(names)}")
    if len({source.name for source in matches}) > 1:
        raise ModelError(f"There are several models; choose one with --name: {list_choices(names)}")
    return latest_version(matches)


def read_assignments(assignments: Sequence[str]) -> dict[str, object]:
    """Return the parameters of ``name=value``, where value is JSON or else text; reject others (SettingsError)."""
    parameters: dict[str, object] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f'--parameter: Expected "name=value", got {assignment}')
        try:
            parameters[name.strip()] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            parameters[name.strip()] = value
    return parameters


def predict_records(
    servable: Servable,
    name: str,
    data: bytes | str,
    parameters: Mapping[str, object] | None = None,
    limits: Limits = _DEFAULT_LIMITS,
) -> Sequence[Record]:
    """Return the records of the model called `name` for one encoded image, or for one text.

    Raise InferenceError when the input or a parameter is invalid, or the model fails.
    """
    tensor = input_tensor(data, parameters or {})
    request = InferenceRequest(id="command", model_name=name, inputs=(tensor,))
    return servable.predict(request, limits).outputs[0].predictions[0].records()


def input_tensor(data: bytes | str, parameters: Mapping[str, object]) -> BytesTensor:
    """Return one encoded image, or one text, as the input of a request. Parameters that are None are left out."""
    from app.core.wire.bytes_elements import BinaryElement, StringElement

    name, element = ("args", StringElement(data)) if isinstance(data, str) else ("image", BinaryElement(data))
    given = {name: value for name, value in parameters.items() if value is not None}
    return BytesTensor(name=name, shape=(1,), elements=[element], parameters=given)
