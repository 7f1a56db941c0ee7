"""Read tasks of Label Studio with annotations, whose numbers are percent of the image."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, unquote

import msgspec

from app.core.wire.data_url import media_type_of
from app.plugins.evaluation.dataset import EmptyObjectError, EvaluationError, Item, LabelErrors, LabelledObject, Ring
from app.plugins.evaluation.datasets.files import (
    as_list,
    bounding_box,
    parse_number,
    ring_area,
    rotated,
    whole_number,
    with_slashes,
)
from tasks.inference.error import quote_value

_INFERENCE = re.compile(r"/inferences/([^/]+)/image")
_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")
"""Label Studio puts this before the names of uploaded files."""
_SHAPES = ("rectangle", "polygon", "ellipse", "brush", "bitmask", "keypoint", "vector", "video")
"""The types of results with a shape start with these; other results are about shapes or images."""
_EXPECTED = "rectanglelabels, polygonlabels or choices"
_PLACES = frozenset({"x", "points", "rle"})
"""Fields of the value of a shape, which results about the shape repeat."""


class _Annotation(msgspec.Struct):
    result: list[dict[str, Any]] = []
    was_cancelled: bool = False
    ground_truth: bool = False
    updated_at: str = ""


class _Task(msgspec.Struct):
    data: dict[str, Any]
    id: int | None = None
    annotations: list[_Annotation] = []


def annotated_images(content: object, place: str, errors: LabelErrors) -> Sequence[Item]:
    """Return the annotated images of tasks. Of several annotations, the ground truth counts, or else the latest.

    Raise EvaluationError when these are no tasks.

    Args:
        content: the tasks, as an export has them.
        place: where they come from, for errors.
        errors: gets the labels that cannot be used.
    """
    try:
        tasks = msgspec.convert(content, list[_Task])
    except msgspec.ValidationError as error:
        raise EvaluationError(
            f"{place}: Expected the tasks of Label Studio with data and annotations: {error}"
        ) from None
    items: list[Item] = []
    for number, task in enumerate(tasks):
        made = [annotation for annotation in task.annotations if not annotation.was_cancelled]
        if made:
            chosen = max(made, key=lambda annotation: (annotation.ground_truth, annotation.updated_at))
            location = f"{place}: [{number}]"
            if (item := _item(task, chosen, location, errors)) is not None:
                items.append(item)
    return items


def path_of_image(address: str) -> str:
    """Return the path of an image whose address a task has, with slashes; empty for a data URI."""
    if media_type_of(address) is not None:
        return ""
    path, _, query = address.partition("?")
    # Local files are a parameter: /data/local-files/?d=folder/name.jpg
    is_local = path.endswith("/local-files/")
    return with_slashes(parse_qs(query).get("d", [""])[0] if is_local else unquote(path))


def name_of_image(path: str) -> str:
    """Return the name of the image file at `path_of_image`, as people know it."""
    return _UPLOADED.sub("", path.rpartition("/")[2])


def _item(task: _Task, annotation: _Annotation, location: str, errors: LabelErrors) -> Item | None:
    name, inference = _reference(task.data)
    if not (name or task.id):
        errors.add(f"{location}.data", "Expected the name or the URL of an image")
        return None
    before = len(errors.messages)
    label = ""
    choices: list[tuple[str, Mapping[str, Any]]] = []
    others: list[object] = []
    objects: list[LabelledObject] = []
    width = height = 0
    for index, region in enumerate(annotation.result):
        place = f"{location}.annotations.result[{index}]"
        with errors.collected(place):
            kind, found = region.get("type"), region.get("value", {})
            if found is not None and not isinstance(found, dict):
                raise ValueError(f"value: Expected an object, got {quote_value(found)}")
            value = cast("dict[str, Any]", found or {})
            if not str(kind).startswith(_SHAPES) and kind != "labels":
                if kind == "choices" and _PLACES.isdisjoint(value):
                    choices.append((place, value))
                else:
                    others.append(kind)
                continue
            if kind not in ("rectanglelabels", "polygonlabels"):
                raise ValueError(f"type: Expected {_EXPECTED}, got {quote_value(kind)}")
            if region.get("image_rotation"):
                expected = "0, because the numbers of a turned image have other axes"
                raise ValueError(f"image_rotation: Expected {expected}, got {quote_value(region['image_rotation'])}")
            width, height = (_side(region, f"original_{side}") for side in ("width", "height"))
            objects.append(_object(kind, value, width, height, place))
    for place, value in choices:
        with errors.collected(place) if not objects else suppress(ValueError):
            label = _single_label(value, "choices")
    if others and len(others) == len(annotation.result):
        # They do not say whether there are objects.
        errors.add(location, f"annotations.result: Expected {_EXPECTED}, got {quote_value(others)}")
    if len(errors.messages) > before:
        return None
    known = {"inference": inference, "task": task.id}
    metadata = {key: str(value) for key, value in known.items() if value}
    return Item(
        id=name, image=Path(), width=width, height=height, label=label, objects=tuple(objects), metadata=metadata
    )


def _reference(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the image, and the id of its inference; "" if it is not known."""
    inference = data.get("inference")
    for value in data.values():
        if not isinstance(value, str) or value == inference:
            continue
        path = path_of_image(value)
        if match := _INFERENCE.search(path):
            return match[1], match[1]
        if "/" in path or Path(path).suffix:
            return name_of_image(path), inference if isinstance(inference, str) else ""
    return (inference, inference) if isinstance(inference, str) else ("", "")


def _object(kind: str, value: Mapping[str, Any], width: int, height: int, location: str) -> LabelledObject:
    """Return one region in pixels, or raise `ValueError` if it cannot be read."""
    label = _single_label(value, kind)
    if kind == "polygonlabels":
        points = [tuple(map(parse_number, as_list(point) or ())) for point in as_list(value.get("points")) or ()]
        if any(len(point) != 2 for point in points):
            raise ValueError(f"points: Expected x and y of each point, got {quote_value(value.get('points'))}")
        ring: Ring = tuple((point[0] * width / 100, point[1] * height / 100) for point in points)
        if not ring_area(ring):
            raise EmptyObjectError
        return LabelledObject(label=label, box=bounding_box([ring]), rings=(ring,), location=location)
    names = ("x", "y", "width", "height")
    x, y, w, h = (
        parse_number(value.get(name)) * side / 100 for name, side in zip(names, (width, height) * 2, strict=True)
    )
    box, angle = (x, y, x + w, y + h), parse_number(value.get("rotation") or 0)
    # The rectangle turns around its corner (x, y).
    ring = rotated(box, angle, (x, y))
    return LabelledObject(label=label, box=None if angle else box, rings=(ring,), location=location)


def _side(region: Mapping[str, Any], name: str) -> int:
    value = whole_number(region.get(name))
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name}: Expected a number of pixels, got {quote_value(value)}")
    return value


def _single_label(value: Mapping[str, Any], name: str) -> str:
    labels = as_list(value.get(name)) or ()
    if len(labels) != 1 or not isinstance(labels[0], str):
        raise ValueError(f"{name}: Expected one label, got {quote_value(value.get(name))}")
    return labels[0]
