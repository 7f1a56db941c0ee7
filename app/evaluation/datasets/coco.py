"""COCO's JSON: images, categories, and annotations with boxes, polygons or run lengths (cocodataset.org)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from app.evaluation.dataset import Dataset, Faults, Item, LabelledObject, Ring
from app.evaluation.datasets.files import area_of, json_of, listed, numbers, scalars, sidecar, size_of
from app.evaluation.datasets.run_lengths import rings_of_run_lengths
from app.evaluation.extras import EvaluationError
from tasks.exchange.error import brief
from tasks.task import TaskType

__all__ = ("read_coco",)

_OWN = frozenset({"id", "width", "height", "file_name", "license", "coco_url", "flickr_url"})
_SEVERAL_PARTS = 3


class _File(msgspec.Struct):
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: list[dict[str, Any]]


def read_coco(path: Path, faults: Faults, images: Path | None = None) -> Dataset:
    """Read an annotation file. Crowds (``iscrowd``) are ignored objects.

    Args:
        path: the file.
        faults: collects faults.
        images: the folder of images; by default it is searched beside the file and in COCO's layout.

    Raises:
        EvaluationError: when the file is not COCO.
    """
    try:
        file = msgspec.convert(json_of(path), _File)
    except msgspec.ValidationError as error:
        raise EvaluationError(f"{path}: Expected images, annotations and categories of COCO: {error}") from None
    labels = _labels(path, file, faults)
    objects: dict[object, list[LabelledObject]] = {_id(image, "id"): [] for image in file.images}
    sizes = {_id(image, "id"): (image.get("width"), image.get("height")) for image in file.images}
    seen: set[object] = set()
    for index, annotation in enumerate(file.annotations):
        place = f"{path}: annotations[{index}]"
        number, of, category = (_id(annotation, name) for name in ("id", "image_id", "category_id"))
        if number is not None and number in seen:
            faults.add(place, f"id: Expected each id once, got {brief(number)} again")
        elif of not in objects:
            got = brief(annotation.get("image_id"))
            faults.add(place, f"image_id: Expected the id of an image, got {got}")
        elif category not in labels:
            got = brief(annotation.get("category_id"))
            faults.add(place, f"category_id: Expected the id of a category, got {got}")
        elif read := _object(annotation, labels[category], sizes[of], place, faults):
            objects[of].append(read)
        seen.add(number)
    items = _items(path, file, objects, _folder(path, file, images), faults)
    notes = list(faults.notes())
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


def _labels(path: Path, file: _File, faults: Faults) -> dict[object, str]:
    labels: dict[object, str] = {}
    for index, category in enumerate(file.categories):
        place, number, name = f"{path}: categories[{index}]", category.get("id"), category.get("name")
        if not isinstance(number, int) or not isinstance(name, str) or not name:
            faults.add(place, f"Expected an id, a whole number, and a name, got {brief(category)}")
        elif number in labels or name in labels.values():
            faults.add(place, f"Expected each id and name once, got {number} {brief(name)} again")
        else:
            labels[number] = name
    return labels


def _items(
    path: Path, file: _File, objects: Mapping[object, list[LabelledObject]], folder: Path, faults: Faults
) -> list[Item]:
    items: list[Item] = []
    metadata = sidecar(path.parent, faults)
    seen: set[object] = set()
    for index, image in enumerate(file.images):
        place, number, name = f"{path}: images[{index}]", image.get("id"), image.get("file_name")
        if not isinstance(number, int | str) or not isinstance(name, str) or not name:
            faults.add(place, f"Expected an id and a file_name, got {brief(number)} and {brief(name)}")
            continue
        if number in seen or name in seen:
            faults.add(place, f"Expected each id and file_name once, got {brief(number)} {brief(name)} again")
            continue
        seen.update((number, name))
        width, height = size_of(folder / name, faults)
        declared = image.get("width"), image.get("height")
        if width and None not in declared and declared != (width, height):
            got = " and ".join(brief(value) for value in declared)
            faults.add(place, f"Expected width and height of {name}, upright, {width} and {height}, got {got}")
        elif width:
            item = Item(
                id=name,
                image=folder / name,
                width=width,
                height=height,
                objects=tuple(objects[number]),
                metadata={**scalars(image, _OWN), **metadata.get(name, {})},
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
    annotation: Mapping[str, Any], label: str, size: tuple[Any, Any], place: str, faults: Faults
) -> LabelledObject | None:
    """Read one annotation. If it cannot be used, record a fault or a note and return None."""
    before = len(faults.found)
    box, outline = annotation.get("bbox"), annotation.get("segmentation")
    corners = _box(box, place, faults) if box else None
    rings, even_odd = _outline(outline, size, place, faults) if outline else (None, False)
    crowd = annotation.get("iscrowd")
    if crowd not in (None, 0, 1):
        faults.add(place, f"iscrowd: Expected 0 or 1, got {brief(crowd)}")
    if len(faults.found) > before:
        return None
    if corners is None and rings is None:
        if not box and not outline:
            faults.add(place, "Expected a bbox or a segmentation, got neither")
        else:
            faults.leave_out(place)
        return None
    return LabelledObject(
        label=label,
        box=corners or _around(rings or ()),
        rings=rings,
        even_odd=even_odd,
        ignored=bool(crowd),
        place=place,
    )


def _box(value: object, place: str, faults: Faults) -> tuple[float, float, float, float] | None:
    values = listed(value) or ()
    if len(values) != 4:
        faults.add(place, f"bbox: Expected left, top, width and height, got {brief(value)}")
        return None
    read = numbers(values, f"{place}.bbox", faults)
    if read is None:
        return None
    x, y, width, height = read
    if width < 0 or height < 0:
        faults.add(place, f"bbox: Expected a width and a height that are not negative, got {brief(value)}")
    return (x, y, x + width, y + height) if width > 0 and height > 0 else None


def _outline(
    value: object, size: tuple[object, object], place: str, faults: Faults
) -> tuple[tuple[Ring, ...] | None, bool]:
    """Return the rings and whether the even-odd rule applies; None without area."""
    place = f"{place}.segmentation"
    if isinstance(value, dict):
        return rings_of_run_lengths(cast("dict[str, object]", value), size, place, faults), True
    parts = listed(value)
    if parts is None:
        faults.add(place, f"Expected polygons or run lengths, got {brief(value)}")
        return None, False
    rings: list[Ring] = []
    for index, part in enumerate(parts):
        flat = listed(part) or ()
        if len(flat) < 2 * _SEVERAL_PARTS or len(flat) % 2:
            faults.add(f"{place}[{index}]", f"Expected x and y of three or more points, got {brief(part)}")
        elif (read := numbers(flat, f"{place}[{index}]", faults)) is not None:
            ring = tuple(zip(read[::2], read[1::2], strict=True))
            if area_of(ring) > 0:
                rings.append(ring)
    return tuple(rings) or None, False


def _around(rings: Sequence[Ring]) -> tuple[float, float, float, float]:
    xs, ys = zip(*(point for ring in rings for point in ring), strict=True)
    return min(xs), min(ys), max(xs), max(ys)
