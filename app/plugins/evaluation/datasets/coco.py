"""COCO's JSON: images, categories, and annotations with boxes, polygons or run lengths (cocodataset.org)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from app.plugins.evaluation.dataset import (
    Box,
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
    MAX_COORDINATE,
    DatasetOptions,
    bounding_box,
    find_file,
    is_file,
    parse_number,
    read_item,
    read_json,
    read_sidecar,
    ring_area,
    rotated,
    scalar_values,
    whole_number,
    with_slashes,
)
from app.plugins.evaluation.masks import decode_mask, read_run_lengths
from tasks.inference.error import quote_value
from tasks.task import TaskType
from tasks.vision.contours import MAX_PIXELS

_RESERVED_KEYS = frozenset({"id", "width", "height", "file_name", "license", "coco_url", "flickr_url"})
_ORIENTED = TaskType.ORIENTED_OBJECT_DETECTION
_LEFT_TOP_WIDTH_HEIGHT = 1
"""The only ``bbox_mode`` of Detectron2 that COCO's boxes have."""

_Coordinate = Annotated[float, msgspec.Meta(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]
_Length = Annotated[float, msgspec.Meta(ge=0, le=MAX_COORDINATE)]
_Side = Annotated[float, msgspec.Meta(gt=0, multiple_of=1)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class _File(msgspec.Struct):
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: list[dict[str, Any]]


class _Image(msgspec.Struct):
    id: int | str
    name: _Name = msgspec.field(name="file_name")
    width: Any = None
    height: Any = None


class _Category(msgspec.Struct):
    id: int
    name: _Name


class _Runs(msgspec.Struct):
    size: tuple[_Side, _Side]
    counts: Any


class _Annotation(msgspec.Struct):
    image_id: int | str
    category_id: int
    id: int | str | None = None
    bbox: tuple[_Coordinate, _Coordinate, _Length, _Length] | None = None
    segmentation: list[list[_Coordinate]] | _Runs | None = None
    iscrowd: Literal[0, 1] | bool | None = None
    attributes: Any = None
    bbox_mode: Any = _LEFT_TOP_WIDTH_HEIGHT
    rotation: Any = None
    angle: Any = None


_Named = TypeVar("_Named", _Image, _Category)


def read_coco(path: Path, errors: LabelErrors, options: DatasetOptions) -> Dataset:
    """Read an annotation file. Crowds (``iscrowd``) are ignored objects.

    By default the images are searched beside the file and in COCO's layout. Raise EvaluationError when the file is not
    COCO.
    """
    try:
        file = msgspec.convert(read_json(path), _File)
    except msgspec.ValidationError as error:
        raise EvaluationError(f"{path}: Expected images, annotations and categories of COCO: {error}") from None
    categories = _unique(f"{path}: categories", file.categories, _Category, errors)
    labels = {category.id: category.name for _, category, _ in categories}
    images = list(_unique(f"{path}: images", file.images, _Image, errors))
    objects: dict[int | str, list[LabelledObject]] = {image.id: [] for _, image, _ in images}
    sizes = {image.id: (image.width, image.height) for _, image, _ in images}
    seen: set[object] = set()
    outlines: set[TaskType] = set()
    for index, entry in enumerate(file.annotations):
        location = f"{path}: annotations[{index}]"
        with errors.collected(location):
            annotation = _annotation(entry)
            number, image, category = annotation.id, annotation.image_id, annotation.category_id
            if number is not None and number in seen:
                raise ValueError(f"id: Expected each id once, got {quote_value(number)} again")
            if image not in objects:
                raise ValueError(f"image_id: Expected the id of an image, got {quote_value(image)}")
            if category not in labels:
                raise ValueError(f"category_id: Expected the id of a category, got {quote_value(category)}")
            seen.add(number)
            labelled = _object(annotation, labels[category], sizes[image], location)
            objects[image].append(labelled)
            if labelled.rings or labelled.mask:
                outlines.add(_ORIENTED if annotation.segmentation is None else TaskType.IMAGE_SEGMENTATION)
    items = _items(path, images, objects, options, errors)
    crowds = sum(label.ignored for item in items for label in item.objects)
    notes = (f"{crowds} crowds (iscrowd) are neither to be found nor wrong to find",) if crowds else ()
    tasks = (TaskType.OBJECT_DETECTION,)
    if outlines:
        tasks = (_ORIENTED if outlines == {_ORIENTED} else TaskType.IMAGE_SEGMENTATION, TaskType.OBJECT_DETECTION)
    elif not file.annotations:
        tasks = (TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION)
    return Dataset(
        path=path, format="coco", tasks=tasks, labels=tuple(labels.values()), items=tuple(items), notes=notes
    )


def _unique(
    location: str, entries: Sequence[Mapping[str, Any]], kind: type[_Named], errors: LabelErrors
) -> Iterator[tuple[str, _Named, Mapping[str, Any]]]:
    """Yield location, values and raw values of each valid entry with a new id and name."""
    seen: set[object] = set()
    for index, entry in enumerate(entries):
        with errors.collected(f"{location}[{index}]"):
            named = msgspec.convert({key: whole_number(value) for key, value in entry.items()}, kind)
            if not seen.isdisjoint((named.id, named.name)):
                again = f"{quote_value(named.id)} {quote_value(named.name)}"
                raise ValueError(f"Expected each id and name once, got {again} again")
            seen.update((named.id, named.name))
            yield f"{location}[{index}]", named, entry


def _items(
    path: Path,
    images: Sequence[tuple[str, _Image, Mapping[str, Any]]],
    objects: Mapping[int | str, list[LabelledObject]],
    options: DatasetOptions,
    errors: LabelErrors,
) -> list[Item]:
    """Return the images by id, the order in which COCO's tools rank predictions of equal scores."""
    items: dict[int | str, Item] = {}
    metadata = read_sidecar(path.parent, errors)
    folder = options.images or _folder(path, [image.name for _, image, _ in images[:20]])
    for location, image, entry in images:
        name = with_slashes(image.name)
        row = {**scalar_values(entry, _RESERVED_KEYS), **metadata.get(name, {})}
        fields: dict[str, Any] = {"objects": tuple(objects[image.id]), "metadata": row}
        file, declared = find_file(folder, image.name), (image.width, image.height)
        if options.needs_images or is_file(file):
            item = read_item(name, file, errors, **fields)
        else:
            width, height = (side if isinstance(side, int) else 0 for side in declared)
            item = Item(id=name, image=file, width=width, height=height, **fields)
        if item and None not in declared and declared != (item.width, item.height):
            got = " and ".join(quote_value(value) for value in declared)
            expected = f"width and height of {image.name}, upright, {item.width} and {item.height}"
            errors.add(location, f"Expected {expected}, got {got}")
        elif item:
            items[image.id] = item
    return [items[number] for number in sorted(items, key=lambda number: (isinstance(number, str), number))]


def _folder(path: Path, names: Sequence[str]) -> Path:
    """Return the folder of images: COCO has ``annotations/instances_val2017.json`` beside ``val2017/``."""
    split = path.stem.rpartition("_")[2]
    folders = [root / name for root in (path.parent, path.parent.parent) for name in ("", "images", split)]
    return max(folders, key=lambda folder: sum(is_file(find_file(folder, name)) for name in names))


def _annotation(entry: Mapping[str, Any]) -> _Annotation:
    """Return the values of an annotation. Raise `ValueError` for keys that give its numbers another meaning."""
    # Exporters write an empty list for an outline or box that is missing.
    values = {key: whole_number(value) for key, value in entry.items() if value != []}
    annotation = msgspec.convert(values, _Annotation)
    if annotation.bbox_mode != _LEFT_TOP_WIDTH_HEIGHT:
        expected = "1, for left, top, width and height in pixels"
        raise ValueError(f"bbox_mode: Expected {expected}, got {quote_value(annotation.bbox_mode)}")
    for name, value in (("rotation", annotation.rotation), ("angle", annotation.angle)):
        if value:
            expected = "0, or degrees in attributes.rotation, as CVAT writes them"
            raise ValueError(f"{name}: Expected {expected}, got {quote_value(value)}")
    return annotation


def _object(annotation: _Annotation, label: str, size: tuple[object, object], location: str) -> LabelledObject:
    """Return the object of an annotation. Raise `ValueError` if it has no part, or no area."""
    box, rings, mask = None, (), None
    if annotation.bbox is None and annotation.segmentation is None:
        raise ValueError("Expected a bbox or a segmentation, got neither")
    if annotation.bbox is not None and min(annotation.bbox[2:]) > 0:
        x, y, width, height = annotation.bbox
        box = (x, y, x + width, y + height)
    if isinstance(annotation.segmentation, _Runs):
        mask = _mask(annotation.segmentation, size)
    else:
        polygons = [_ring(index, polygon) for index, polygon in enumerate(annotation.segmentation or ())]
        rings = tuple(ring for ring in polygons if ring_area(ring) > 0)
    if not (box or rings or mask):
        raise EmptyObjectError
    if box and not rings and not mask and (degrees := _rotation(annotation)):
        left, top, right, bottom = box
        rings, box = (rotated(box, degrees, ((left + right) / 2, (top + bottom) / 2)),), None
    box = box or _bounding_box(rings, mask)
    return LabelledObject(
        label=label, box=box, rings=rings or None, mask=mask, ignored=bool(annotation.iscrowd), location=location
    )


def _rotation(annotation: _Annotation) -> float:
    """Return the clockwise rotation of the box about its centre in degrees, which CVAT writes as an attribute."""
    attributes = annotation.attributes
    rotation = cast("dict[str, object]", attributes).get("rotation") if isinstance(attributes, dict) else None
    try:
        return 0.0 if rotation is None else parse_number(rotation) % 360
    except ValueError as error:
        raise ValueError(f"attributes.rotation: {error}") from None


def _ring(index: int, polygon: Sequence[float]) -> Ring:
    """Return the points of a part of an outline. Fewer than three have no area."""
    if len(polygon) % 2:
        expected = "x and y of each point"
        raise ValueError(f"segmentation[{index}]: Expected {expected}, got {quote_value(polygon)}")
    return tuple(zip(polygon[::2], polygon[1::2], strict=True))


def _mask(runs: _Runs, size: tuple[object, object]) -> RunLengths | None:
    height, width = map(int, runs.size)
    is_known = all(isinstance(side, int) for side in size)
    if height * width > MAX_PIXELS or (is_known and (width, height) != size):
        expected = f"the size of the image, {size[1]} and {size[0]}"
        raise ValueError(f"segmentation.size: Expected {expected}, got {height} and {width}")
    mask = read_run_lengths(runs.counts, height, width)
    return mask if decode_mask(mask).any() else None


def _bounding_box(rings: Sequence[Ring], mask: RunLengths | None) -> Box:
    if mask is not None:
        ys, xs = decode_mask(mask).nonzero()
        return float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)
    return bounding_box(rings)
