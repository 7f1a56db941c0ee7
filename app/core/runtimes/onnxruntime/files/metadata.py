"""Read the ``metadata_props`` of an ONNX file.

Ultralytics and similar exporters write Python literals. They are untrusted, so only `ast.literal_eval` reads them.
PaddleOCR's recognisers list their characters.
"""

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from app.core.runtimes.label_files import read_name
from app.core.runtimes.onnxruntime.images.preprocessing import Interpolation, pillow_filter
from app.core.settings.model import ModelError
from tasks.task import TaskType

ULTRALYTICS_TASKS: Mapping[str, TaskType] = {
    "classify": TaskType.IMAGE_CLASSIFICATION,
    "detect": TaskType.OBJECT_DETECTION,
    "obb": TaskType.ORIENTED_OBJECT_DETECTION,
    "segment": TaskType.IMAGE_SEGMENTATION,
    "semantic": TaskType.IMAGE_SEGMENTATION,
    "pose": TaskType.OBJECT_DETECTION,
}

T = TypeVar("T")

_MAX_LITERAL = 2_000_000
"""Characters. The names of 21,000 ImageNet classes need less than 600,000."""
_MAX_DESCRIPTION = 300
"""Characters."""


class ExportMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of the file; None for undeclared fields.

    Attributes:
        task: the exporter's name of the task, such as ``detect`` or ``pose``.
        names: class names by class number; of some exporters only those numbers that have a name.
        size: (height, width) of the exported input, pixels; -1 for the image's own.
        suppressed: whether the graph includes non-maximum suppression.
        end_to_end: whether the network was trained to need no suppression.
        keypoints: number of keypoints that a pose model appends to each box, and of numbers for each, 2 or 3.
        characters: the alphabet of a text recogniser, one line each; ``character`` in PaddleOCR's exports.
        interpolation: filter for resizing, from the keys ``interpolation`` or ``resample``.
        contract: what only the layout reads that described the graph.
        unreadable: why a property has no value, by its name. It matters only if no higher source decides.
        files: the files beside the graph that declare this, by names that fit any graph; a copy of it needs them.
    """

    description: str = ""
    task: str | None = None
    names: tuple[str, ...] | None = None
    size: tuple[int, int] | None = None
    suppressed: bool = False
    end_to_end: bool = False
    keypoints: tuple[int, int] | None = None
    characters: str | None = None
    interpolation: Interpolation | None = None
    antialias: bool | None = None
    contract: object = None
    unreadable: Mapping[str, str] = {}
    files: Mapping[str, Path] = {}

    def require_readable(self, key: str, setting: str) -> None:
        """Raise ModelError if the property `key` cannot be read; the error names the `setting` that replaces it."""
        if key in self.unreadable:
            raise ModelError(f"{self.unreadable[key]}; declare {setting} in model-settings.json")


def read_metadata(file: Path, properties: Mapping[str, str]) -> ExportMetadata:
    """Read the used properties. All of them are optional.

    Names and sizes that cannot be read are `unreadable`, because settings may declare them. Raise ModelError if another
    property cannot be read.
    """
    unreadable: dict[str, str] = {}

    def optional(key: str, convert: Callable[[Path, object], T | None]) -> T | None:
        try:
            return convert(file, _literal(file, properties, key))
        except ModelError as error:
            unreadable[key] = str(error)
            return None

    # Other exporters than Ultralytics' may write other texts.
    arguments = optional("args", lambda _, value: value)
    suppressed = isinstance(arguments, dict) and cast("dict[object, object]", arguments).get("nms") is True
    return ExportMetadata(
        description=" ".join(properties.get("description", "")[:_MAX_DESCRIPTION].split()),
        task=properties.get("task") or None,
        names=optional("names", _names),
        size=optional("imgsz", _size),
        suppressed=suppressed or properties.get("nms") == "True",
        end_to_end=properties.get("end2end") == "True",
        keypoints=_keypoints(file, _literal(file, properties, "kpt_shape")),
        characters=properties.get("character") or None,
        interpolation=pillow_filter(properties.get("interpolation") or properties.get("resample")),
        antialias={"true": True, "false": False}.get(properties.get("antialias", "").lower()),
        unreadable=unreadable,
    )


def _keypoints(file: Path, value: object) -> tuple[int, int] | None:
    match value:
        case None:
            return None
        case [int(points), int(numbers)] if points > 0 and numbers in (2, 3):
            return points, numbers
        case _:
            raise ModelError(f"{file}: metadata 'kpt_shape' should be [points, 2 or 3], got {value!r:.60}")


def _literal(file: Path, properties: Mapping[str, str], key: str) -> object:
    text = properties.get(key)
    if not text:
        return None
    if len(text) > _MAX_LITERAL:
        raise ModelError(f"{file}: metadata {key!r} has {len(text):,} characters, more than {_MAX_LITERAL:,}")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ModelError(f"{file}: metadata {key!r} is not a Python literal: {text[:60]!r}") from None


def _names(file: Path, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    listed: object = value
    if isinstance(value, dict):
        by_number = cast("dict[object, object]", value)
        numbers = sorted(key for key in by_number if isinstance(key, int))
        listed = [by_number[number] for number in numbers] if numbers == list(range(len(by_number))) else None
    if isinstance(listed, (list, tuple)):
        names = [read_name(name) for name in cast("list[object]", listed)]
        if None not in names:
            return tuple(name for name in names if name is not None)
    raise ModelError(f"{file}: metadata 'names' should give a name to each class number 0, 1, ..., got {value!r:.60}")


def _size(file: Path, value: object) -> tuple[int, int] | None:
    match [value, value] if isinstance(value, int) else value:
        case None:
            return None
        case [int(height), int(width)] if height > 0 and width > 0:
            return height, width
        case _:
            raise ModelError(f"{file}: metadata 'imgsz' should be [height, width], got {value!r:.60}")
