"""COCO's JSON: images, categories, and annotations with boxes, polygons or run lengths (cocodataset.org)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from app.evaluation.dataset import Dataset, Item, LabelErrors, LabelledObject, Ring
from app.evaluation.datasets.files import (
    as_list,
    parse_numbers,
    read_image_size,
    read_json,
    read_sidecar,
    ring_area,
    scalar_values,
)
from app.evaluation.datasets.run_lengths import decode_rings
from app.evaluation.extras import EvaluationError
from tasks.inference.error import quote_value
from tasks.task import TaskType

__all__ = ("read_coco",)

_RESERVED_KEYS = frozenset({"id", "width", "height", "file_name", "license", "coco_url", "flickr_url"})
_MIN_POINTS = 3


class _File(msgspec.Struct):
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: list[dict[str, Any]]


def read_coco(path: Path, errors: LabelErrors, images: Path | None = None) -> Dataset:
    """Read an annotation file. Crowds (``iscrowd``) are ignored objects.

    Args:
        path: the file.
        errors: collects errors.
        images: the folder of images; by default it is searched beside the file and in COCO's layout.

    Raises:
        EvaluationError: when the file is not COCO.
    """
    try:
        file = msgspec.convert(read_json(path), _File)
    except msgspec.ValidationError as error:
        raise EvaluationError(f"{path}: Expected images, annotations and categories of COCO: {error}") from None
    labels = _labels(path, file, errors)
    objects: dict[object, list[LabelledObject]] = {_id(image, "id"): [] for image in file.images}
    sizes = {_id(image, "id"): (image.get("width"), image.get("height")) for image in file.images}
    seen: set[object] = set()
    for index, annotation in enumerate(file.annotations):
        location = f"{path}: annotations[{index}]"
        annotation_id, image_id, category = (_id(annotation, name) for name in ("id", "image_id", "category_id"))
        if annotation_id is not None and annotation_id in seen:
            errors.add(location, f"id: Expected each id once, got {quote_value(annotation_id)} again")
        elif image_id not in objects:
            got = quote_value(annotation.get("image_id"))
            errors.add(location, f"image_id: Expected the id of an image, got {got}")
        elif category not in labels:
            got = quote_value(annotation.get("category_id"))
            errors.add(location, f"category_id: Expected the id of a category, got {got}")
        elif labelled := _object(annotation, labels[category], sizes[image_id], location, errors):
            objects[image_id].append(labelled)
        seen.add(annotation_id)
    items = _items(path, file, objects, _folder(path, file, images), errors)
    notes = list(errors.notes())
    crowds = sum(label.ignored for item in items for label in item.objects)
    if crowds:
        notes.append(f"{crowds} crowds (iscrowd) are neither to be found nor wrong to find")
    outlined = any(label.rings for item in items for label in item.objects)
    tasks = (TaskType.IMAGE_SEGMENTATION, TaskType.OBJECT_DETECTION) if outlined else (TaskType.OBJECT_DETECTION,)
    return Dataset(
        path=path, format="coco", tasks=tasks, labels=tuple(labels.values()), items=tuple(items), notes=tuple(notes)
    )


def _id(values: Mapping[str, Any], name: str) -> int | str | None:
    value = values.get(name)
    return value if isinstance(value, int | str) else None


def _labels(path: Path, file: _File, errors: LabelErrors) -> dict[object, str]:
    labels: dict[object, str] = {}
    for index, category in enumerate(file.categories):
        location, number, name = f"{path}: categories[{index}]", category.get("id"), category.get("name")
        if not isinstance(number, int) or not isinstance(name, str) or not name:
            errors.add(location, f"Expected an id, a whole number, and a name, got {quote_value(category)}")
        elif number in labels or name in labels.values():
            errors.add(location, f"Expected each id and name once, got {number} {quote_value(name)} again")
        else:
            labels[number] = name
    return labels


def _items(
    path: Path, file: _File, objects: Mapping[object, list[LabelledObject]], folder: Path, errors: LabelErrors
) -> list[Item]:
    items: list[Item] = []
    metadata = read_sidecar(path.parent, errors)
    seen: set[object] = set()
    for index, image in enumerate(file.images):
        location, number, name = f"{path}: images[{index}]", image.get("id"), image.get("file_name")
        if not isinstance(number, int | str) or not isinstance(name, str) or not name:
            errors.add(location, f"Expected an id and a file_name, got {quote_value(number)} and {quote_value(name)}")
            continue
        if number in seen or name in seen:
            errors.add(
                location, f"Expected each id and file_name once, got {quote_value(number)} {quote_value(name)} again"
            )
            continue
        seen.update((number, name))
        width, height = read_image_size(folder / name, errors)
        declared = image.get("width"), image.get("height")
        if width and None not in declared and declared != (width, height):
            got = " and ".join(quote_value(value) for value in declared)
            errors.add(location, f"Expected width and height of {name}, upright, {width} and {height}, got {got}")
        elif width:
            item = Item(
                id=name,
                image=folder / name,
                width=width,
                height=height,
                objects=tuple(objects[number]),
                metadata={**scalar_values(image, _RESERVED_KEYS), **metadata.get(name, {})},
            )
            items.append(item)
    return items


def _folder(path: Path, file: _File, images: Path | None) -> Path:
    """Return the folder of images: COCO has ``annotations/instances_val2017.json`` beside ``val2017/``."""
    if images is not None:
        return images
    split = path.stem.rpartition("_")[2]
    beside = (path.parent, path.parent / "images", path.parent / split)
    above = (path.parent.parent, path.parent.parent / "images", path.parent.parent / split)
    names = [name for image in file.images[:20] if isinstance(name := image.get("file_name"), str)]
    return max((*beside, *above), key=lambda folder: sum(_is_file(folder / name) for name in names))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _object(
    annotation: Mapping[str, Any], label: str, size: tuple[Any, Any], location: str, errors: LabelErrors
) -> LabelledObject | None:
    """Read one annotation. If it cannot be used, record an error or a note and return None."""
    errors_before = len(errors.messages)
    box, outline = annotation.get("bbox"), annotation.get("segmentation")
    corners = _box(box, location, errors) if box else None
    rings, even_odd = _outline(outline, size, location, errors) if outline else (None, False)
    crowd = annotation.get("iscrowd")
    if crowd not in (None, 0, 1):
        errors.add(location, f"iscrowd: Expected 0 or 1, got {quote_value(crowd)}")
    if len(errors.messages) > errors_before:
        return None
    if corners is None and rings is None:
        if not box and not outline:
            errors.add(location, "Expected a bbox or a segmentation, got neither")
        else:
            errors.skip_empty(location)
        return None
    return LabelledObject(
        label=label,
        box=corners or _bounding_box(rings or ()),
        rings=rings,
        even_odd=even_odd,
        ignored=bool(crowd),
        location=location,
    )


def _box(value: object, location: str, errors: LabelErrors) -> tuple[float, float, float, float] | None:
    values = as_list(value) or ()
    if len(values) != 4:
        errors.add(location, f"bbox: Expected left, top, width and height, got {quote_value(value)}")
        return None
    coordinates = parse_numbers(values, f"{location}.bbox", errors)
    if coordinates is None:
        return None
    x, y, width, height = coordinates
    if width < 0 or height < 0:
        errors.add(location, f"bbox: Expected a width and a height that are not negative, got {quote_value(value)}")
    return (x, y, x + width, y + height) if width > 0 and height > 0 else None


def _outline(
    value: object, size: tuple[object, object], location: str, errors: LabelErrors
) -> tuple[tuple[Ring, ...] | None, bool]:
    """Return the rings and whether the even-odd rule applies; None without area."""
    location = f"{location}.segmentation"
    if isinstance(value, dict):
        return decode_rings(cast("dict[str, object]", value), size, location, errors), True
    polygons = as_list(value)
    if polygons is None:
        errors.add(location, f"Expected polygons or run lengths, got {quote_value(value)}")
        return None, False
    rings: list[Ring] = []
    for index, polygon in enumerate(polygons):
        flat = as_list(polygon) or ()
        if len(flat) < 2 * _MIN_POINTS or len(flat) % 2:
            errors.add(f"{location}[{index}]", f"Expected x and y of three or more points, got {quote_value(polygon)}")
        elif (coordinates := parse_numbers(flat, f"{location}[{index}]", errors)) is not None:
            ring = tuple(zip(coordinates[::2], coordinates[1::2], strict=True))
            if ring_area(ring) > 0:
                rings.append(ring)
    return tuple(rings) or None, False


def _bounding_box(rings: Sequence[Ring]) -> tuple[float, float, float, float]:
    xs, ys = zip(*(point for ring in rings for point in ring), strict=True)
    return min(xs), min(ys), max(xs), max(ys)
