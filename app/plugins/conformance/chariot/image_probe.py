"""Send images to an engine, read the items leniently, so that each item can be checked on its own, and compare them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from app.plugins.conformance.check import NotApplicableError, expect
from app.plugins.conformance.exchange import InconclusiveError
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import SAMPLE_IMAGES, SampleImage
from app.plugins.conformance.tensors import TEXTS

Item = dict[str, Any]

_SCORED = ("label", "score")
FIELDS: Mapping[str, Sequence[str]] = {
    "IMAGE_CLASSIFICATION": _SCORED,
    "OBJECT_DETECTION": ("label", "score", "xmin", "ymin", "xmax", "ymax"),
    "ORIENTED_OBJECT_DETECTION": ("label", "score", "cx", "cy", "w", "h", "r"),
    "IMAGE_SEGMENTATION": ("label", "score", "contour"),
    "IMAGE_TEXT_TO_TEXT": ("prompt", "answer"),
}
"""The fields of an item, by task type (Chariot, "Inference Protocols", Responses)."""

_OTHER_NAMES: Mapping[str, Sequence[str]] = {
    "ORIENTED_OBJECT_DETECTION": ("angle", "rotation", "theta", "obb", "rbox"),
    "IMAGE_SEGMENTATION": ("mask", "segmentation", "polygon", "points", "contours", "rle"),
    "OBJECT_DETECTION": ("box", "bbox", "bounding_box", "boundingBox", "xyxy", "xywh", "x1", "left", "width"),
    "IMAGE_TEXT_TO_TEXT": ("generated_text", "text"),
}
"""Fields of other formats that show the task type, such as in Hugging Face, COCO and Label Studio."""
_LOW_THRESHOLD = 0.05
_MAX_NUMBER = 1e300


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """An image and the raw items that the engine returned for it."""

    image: SampleImage
    raw_items: Sequence[object]

    @property
    def items(self) -> Sequence[Item]:
        """Return the items that are objects."""
        return _objects(self.raw_items)


def probe_image(probe: Probe, image: SampleImage, parameters: Mapping[str, object] | None = None) -> ProbeResult:
    """Send one image with the needed parameters and `parameters`.

    Raise InconclusiveError if the status is not 200, or the items cannot be read.
    """
    exchange = probe.images.send(probe, image, {**required_parameters(probe), **(parameters or {})})
    if not exchange.ok:
        raise InconclusiveError(f"{image.name} was answered with status {exchange.status}")
    return ProbeResult(image, probe.images.read_items(exchange))


def required_parameters(probe: Probe) -> Mapping[str, object]:
    """Return the parameters that the engine requires: none, or prompts."""
    prompted = {"prompts": TEXTS}
    if probe.target.task_type == "IMAGE_TEXT_TO_TEXT":
        return prompted
    needed = not probe.images.send(probe, SAMPLE_IMAGES[0], {}).ok
    return prompted if needed and probe.images.send(probe, SAMPLE_IMAGES[0], prompted).ok else {}


def results_of(probe: Probe) -> Sequence[ProbeResult]:
    """Return all images with items, at the engine's default threshold, or else at a low one.

    Raise InconclusiveError if no image is answered with items; it has the reason.
    """
    images = (*probe.target.images, *SAMPLE_IMAGES)
    reason = ""
    for parameters in ({}, {"score_threshold": _LOW_THRESHOLD}):
        collected: list[ProbeResult] = []
        for image in images:
            try:
                collected.append(probe_image(probe, image, parameters))
            except InconclusiveError as error:
                reason = str(error)
        if with_items := [result for result in collected if result.raw_items]:
            return with_items
        if collected:
            reason = "The model finds nothing in any image; give others with --image"
    raise InconclusiveError(reason)


def task_type_of(probe: Probe) -> str | None:
    """Return the given task type, or else `suggested_task_type`, or None.

    Raise InconclusiveError if there are no items.
    """
    return probe.target.task_type or suggested_task_type(probe)


def suggested_task_type(probe: Probe) -> str | None:
    """Return the task type that the fields of the items suggest, also in objects in items and in other formats.

    Raise InconclusiveError if there are no items.
    """
    items = [item for result in results_of(probe) for item in result.items]
    names = {name for item in items for part in (item, *_objects(list(item.values()))) for name in part}
    for task_type, fields in FIELDS.items():
        typical = set(fields).difference(_SCORED)
        if typical and len(names & typical) >= max(1, len(typical) // 2):
            return task_type
    for task_type, other_names in _OTHER_NAMES.items():
        if not names.isdisjoint(other_names):
            return task_type
    return None if names.isdisjoint(_SCORED) else "IMAGE_CLASSIFICATION"


def items_of_type(probe: Probe, *task_types: str) -> Sequence[tuple[SampleImage, Item]]:
    """Return every item that is an object, with its image, if the engine's task type is one of `task_types`.

    Raise NotApplicableError if the task type is another one. Raise InconclusiveError if the task type is not known, or
    no item is an object.
    """
    task_type = task_type_of(probe)
    if task_type not in task_types:
        if task_type is None:
            raise InconclusiveError("The task type was not recognised; give it with --task-type")
        raise NotApplicableError(f"About {', '.join(task_types)}; this is {task_type}")
    items = [(result.image, item) for result in results_of(probe) for item in result.items]
    if not items:
        raise InconclusiveError("No item is an object")
    return items


def expect_fields(
    probe: Probe, holds: Callable[[Any], bool], expected: str, names: Sequence[str], *task_types: str
) -> None:
    """Raise a `ViolationError` unless `holds` is true for the fields `names` of each item of one of `task_types`."""
    items = items_of_type(probe, *task_types)
    present = [(image, name, item[name]) for image, item in items for name in names if name in item]
    if not present:
        raise InconclusiveError(f"No item has any of {', '.join(names)}")
    for image, name, value in present:
        expect(holds(value), f"{name} to be {expected}", value, image.name)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a JSON value is a finite number of usable size, and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_NUMBER


def is_similar(first: Sequence[object], second: Sequence[object], tolerance: float) -> bool:
    """Return whether the best items that are objects have the same label, answer, score and coordinates.

    The `tolerance` is the largest difference of scores, and of coordinates relative to the largest coordinate.
    """
    best = [max(_objects(items), key=_score, default=None) for items in (first, second)]
    one, other = best
    if one is None or other is None:
        return one is other
    if any(one.get(name) != other.get(name) for name in ("label", "answer")):
        return False
    scores = [one.get("score"), other.get("score")]
    if is_number(scores[0]) and is_number(scores[1]) and abs(scores[0] - scores[1]) > tolerance:
        return False
    first_extent, second_extent = extent_of(one), extent_of(other)
    scale = max((abs(value) for value in first_extent), default=0)
    return len(first_extent) == len(second_extent) and all(
        abs(a - b) <= tolerance * scale for a, b in zip(first_extent, second_extent, strict=True)
    )


def contour_points(contour: object) -> Iterator[tuple[float, float]]:
    """Yield the points (x, y) of a contour, from lists of any depth."""
    if isinstance(contour, list):
        for part in cast("list[object]", contour):
            yield from contour_points(part)
    elif isinstance(contour, dict):
        point = cast("dict[str, Any]", contour)
        x, y = point.get("x"), point.get("y")
        if is_number(x) and is_number(y):
            yield float(x), float(y)


def extent_of(item: Item) -> list[float]:
    """Return the coordinates of an item; for a contour, of its bounding box: left, top, right, bottom."""
    if points := list(contour_points(item.get("contour"))):
        xs, ys = zip(*points, strict=True)
        return [min(xs), min(ys), max(xs), max(ys)]
    names = ("xmin", "ymin", "xmax", "ymax", "cx", "cy", "w", "h")
    return [float(item[name]) for name in names if is_number(item.get(name))]


def _objects(items: Sequence[object]) -> Sequence[Item]:
    return [cast("Item", item) for item in items if isinstance(item, dict)]


def _score(item: Item) -> float:
    score = item.get("score")
    return score if is_number(score) else -1
