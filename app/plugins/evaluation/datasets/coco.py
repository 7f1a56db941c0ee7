"""COCO's JSON: images, categories, and annotations with boxes, polygons or run lengths (cocodataset.org)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from app.plugins.evaluation.dataset import (
    Dataset,
    EmptyObjectError,
    EvaluationError,
    Item,
    LabelErrors,
    LabelledObject,
    Ring,
    RunLengths,
)
from app.plugins.evaluation.datasets.files import (
    DatasetOptions,
    as_list,
    parse_number,
    read_item,
    read_json,
    read_sidecar,
    ring_area,
    scalar_values,
)
from app.plugins.evaluation.masks import decode_mask, read_run_lengths
from tasks.inference.error import quote_value
from tasks.task import TaskType
from tasks.vision.contours import MAX_PIXELS

_RESERVED_KEYS = frozenset({"id", "width", "height", "file_name", "license", "coco_url", "flickr_url"})
_MIN_POINTS = 3


class _File(msgspec.Struct):
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: list[dict[str, Any]]


def read_coco(path: Path, errors: LabelErrors, options: DatasetOptions) -> Dataset:
    """Read an annotation file. Crowds (``iscrowd``) are ignored objects.

    By default the images are searched beside the file and in COCO's layout.

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
        else:
            with errors.collected(location):
                if labelled := _object(annotation, labels[category], sizes[image_id], location, errors):
                    objects[image_id].append(labelled)
        seen.add(annotation_id)
    items = _items(path, file, objects, options, errors)
    crowds = sum(label.ignored for item in items for label in item.objects)
    notes = (f"{crowds} crowds (iscrowd) are neither to be found nor wrong to find",) if crowds else ()
    tasks = (TaskType.OBJECT_DETECTION,)
    if any(label.rings or label.mask for item in items for label in item.objects):
        tasks = (TaskType.IMAGE_SEGMENTATION, TaskType.OBJECT_DETECTION)
    elif not file.annotations:
        tasks = (TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION)
    return Dataset(
        path=path, format="coco", tasks=tasks, labels=tuple(labels.values()), items=tuple(items), notes=notes
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
    path: Path,
    file: _File,
    objects: Mapping[object, list[LabelledObject]],
    options: DatasetOptions,
    errors: LabelErrors,
) -> list[Item]:
    """Return the images by id, the order in which COCO's tools rank predictions of equal scores."""
    items: dict[int | str, Item] = {}
    metadata, folder = read_sidecar(path.parent, errors), options.images or _folder(path, file)
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
        row = {**scalar_values(image, _RESERVED_KEYS), **metadata.get(name, {})}
        declared = image.get("width"), image.get("height")
        fields: dict[str, Any] = {"objects": tuple(objects[number]), "metadata": row}
        if options.needs_images or _is_file(folder / name):
            item = read_item(name, folder / name, errors, **fields)
        else:
            width, height = (side if isinstance(side, int) else 0 for side in declared)
            item = Item(id=name, image=folder / name, width=width, height=height, **fields)
        if item and None not in declared and declared != (item.width, item.height):
            got = " and ".join(quote_value(value) for value in declared)
            expected = f"width and height of {name}, upright, {item.width} and {item.height}"
            errors.add(location, f"Expected {expected}, got {got}")
        elif item:
            items[number] = item
    return [items[number] for number in sorted(items, key=lambda number: (isinstance(number, str), number))]


def _folder(path: Path, file: _File) -> Path:
    """Return the folder of images: COCO has ``annotations/instances_val2017.json`` beside ``val2017/``."""
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
    """Read one annotation; return None after recording the errors of its parts.

    Raises:
        ValueError: when it has no part, or no area.
    """
    errors_before = len(errors.messages)
    box, outline = annotation.get("bbox"), annotation.get("segmentation")
    corners = _box(box, location, errors) if box else None
    rings, mask = _outline(outline, size, f"{location}.segmentation", errors) if outline else (None, None)
    crowd = annotation.get("iscrowd")
    if crowd not in (None, 0, 1):
        errors.add(location, f"iscrowd: Expected 0 or 1, got {quote_value(crowd)}")
    if len(errors.messages) > errors_before:
        return None
    if corners is None and rings is None and mask is None:
        raise EmptyObjectError if box or outline else ValueError("Expected a bbox or a segmentation, got neither")
    return LabelledObject(
        label=label,
        box=corners or _bounding_box(rings, mask),
        rings=rings,
        mask=mask,
        ignored=bool(crowd),
        location=location,
    )


def _box(value: object, location: str, errors: LabelErrors) -> tuple[float, float, float, float] | None:
    values = as_list(value) or ()
    if len(values) != 4:
        errors.add(location, f"bbox: Expected left, top, width and height, got {quote_value(value)}")
        return None
    with errors.collected(f"{location}.bbox"):
        x, y, width, height = (parse_number(number) for number in values)
        if width < 0 or height < 0:
            errors.add(location, f"bbox: Expected a width and a height that are not negative, got {quote_value(value)}")
        return (x, y, x + width, y + height) if width > 0 and height > 0 else None
    return None


def _outline(
    value: object, size: tuple[object, object], location: str, errors: LabelErrors
) -> tuple[tuple[Ring, ...] | None, RunLengths | None]:
    """Return polygons or a mask; neither without area."""
    if isinstance(value, dict):
        with errors.collected(location):
            return None, _mask(cast("dict[str, object]", value), size)
        return None, None
    polygons = as_list(value)
    if polygons is None:
        errors.add(location, f"Expected polygons or run lengths, got {quote_value(value)}")
    rings: list[Ring] = []
    for index, polygon in enumerate(polygons or ()):
        with errors.collected(f"{location}[{index}]"):
            flat = as_list(polygon) or ()
            if len(flat) < 2 * _MIN_POINTS or len(flat) % 2:
                raise ValueError(f"Expected x and y of three or more points, got {quote_value(polygon)}")
            coordinates = [parse_number(number) for number in flat]
            ring = tuple(zip(coordinates[::2], coordinates[1::2], strict=True))
            if ring_area(ring) > 0:
                rings.append(ring)
    return tuple(rings) or None, None


def _mask(value: Mapping[str, object], size: tuple[object, object]) -> RunLengths | None:
    sides = as_list(value.get("size")) or ()
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ValueError(f"size: Expected height and width, got {quote_value(value.get('size'))}")
    height, width = cast("tuple[int, int]", tuple(sides))
    is_known = all(isinstance(side, int) for side in size)
    if height * width > MAX_PIXELS or (is_known and (width, height) != size):
        raise ValueError(f"size: Expected that of the image, {size[1]} and {size[0]}, got {height} and {width}")
    try:
        mask = read_run_lengths(value.get("counts"), height, width)
    except ValueError as error:
        raise ValueError(f"counts: {error}") from None
    return mask if decode_mask(mask).any() else None


def _bounding_box(rings: Sequence[Ring] | None, mask: RunLengths | None) -> tuple[float, float, float, float]:
    if mask is not None:
        ys, xs = decode_mask(mask).nonzero()
        return float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)
    xs, ys = zip(*(point for ring in rings or () for point in ring), strict=True)
    return min(xs), min(ys), max(xs), max(ys)
