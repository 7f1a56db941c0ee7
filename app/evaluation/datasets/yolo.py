"""Read Ultralytics' text labels: boxes, oriented boxes and polygons in fractions of the image, and ``data.yaml``.

A line is a class number and ``cx cy w h`` (boxes), four corners (oriented boxes) or at least three points (polygons).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from app.evaluation.dataset import Dataset, Faults, Item, LabelledObject, Ring
from app.evaluation.datasets.files import (
    area_of,
    known_of,
    lines_of,
    listed,
    names_of,
    numbers,
    pictures_in,
    sidecar,
    size_of,
)
from app.evaluation.extras import EvaluationError
from tasks.exchange.error import brief
from tasks.task import TaskType

__all__ = ("read_yolo", "yolo_file")

_SPLITS = ("val", "test", "train")
_BOX, _TURNED, _SMALLEST_POLYGON = 4, 8, 6
_DIGITS = 9
_MARGIN = 0.01
"""Tolerance of coordinates outside the image, as a fraction, because exporters round."""


def yolo_file(path: Path) -> Path | None:
    """Return the ``data.yaml`` in the folder `path`, or None if it is not a YOLO dataset."""
    for name in ("data.yaml", "data.yml", "dataset.yaml"):
        if (path / name).is_file():
            return path / name
    return None


def read_yolo(path: Path, faults: Faults, split: str | None = None, task: TaskType | None = None) -> Dataset:
    """Read one split of a dataset.

    Args:
        path: the ``data.yaml``.
        faults: collects faults.
        split: the name of the split; by default the first of ``val``, ``test`` and ``train``.
        task: the meaning of lines with four points; by default oriented boxes, unless other lines have other counts.

    Raises:
        EvaluationError: when the description cannot be used.
    """
    described = _described(path)
    labels = _labels(path, described.get("names"))
    chosen = split or next((name for name in _SPLITS if described.get(name)), None)
    if chosen is None or not described.get(chosen):
        raise EvaluationError(f"{path}: Expected a split {split or ', '.join(_SPLITS)}, got none")
    root = path.parent / str(described.get("path") or "")
    files = _image_files(path, root if root.is_dir() else path.parent, described[chosen], faults)
    metadata, names = sidecar(path.parent, faults), names_of(files)
    read = [(file, *size_of(file, faults), _lines(file, faults)) for file in files]
    wanted = task or _task({len(values) for _, _, _, lines in read for _, _, values in lines})
    items: list[Item] = []
    for file, width, height, lines in read:
        found = [_object(line, labels, (width, height), wanted, faults) for line in lines]
        if width:
            name = _name(file, path.parent)
            items.append(
                Item(
                    id=name,
                    image=file,
                    width=width,
                    height=height,
                    objects=tuple(label for label in found if label),
                    metadata=known_of(metadata, name, file, names),
                )
            )
    tasks = (wanted, TaskType.OBJECT_DETECTION) if wanted is TaskType.IMAGE_SEGMENTATION else (wanted,)
    return Dataset(
        path=path, format="yolo", tasks=tasks, labels=tuple(labels), items=tuple(items), notes=faults.notes()
    )


def _described(path: Path) -> Mapping[str, Any]:
    try:
        described: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise EvaluationError(f"{path}: Expected YAML: {error}") from None
    if not isinstance(described, dict):
        raise EvaluationError(f"{path}: Expected names and splits, got {brief(described)}")
    return cast("dict[str, Any]", described)


def _labels(path: Path, names: object) -> list[str]:
    given = listed(names)
    if given is None and isinstance(names, dict):
        by_number = {str(key): name for key, name in cast("dict[object, object]", names).items()}
        given = [by_number[str(number)] for number in range(len(by_number)) if str(number) in by_number]
        given = given if len(given) == len(by_number) else None
    if not given:
        raise EvaluationError(f"{path}: names: Expected a list of names, or names by numbers from 0 on")
    labels = [str(name) for name in given]
    if len(set(labels)) < len(labels):
        raise EvaluationError(f"{path}: names: Expected each name once, got {brief(labels)}")
    return labels


def _image_files(path: Path, root: Path, value: object, faults: Faults) -> list[Path]:
    found: list[Path] = []
    for entry in listed(value) or [value]:
        place = root / str(entry)
        if not place.exists() and str(entry).startswith("../"):
            # Roboflow's paths are relative to a sibling folder of ``data.yaml``; ultralytics reads them so too.
            place = root / str(entry)[3:]
        if place.is_dir():
            own = pictures_in(place)
            _report_orphans(place, own, faults)
            found += own
        elif place.is_file():
            found += [place.parent / line for _, line in lines_of(place)]
        else:
            raise EvaluationError(f"{path}: Expected a folder of images, or a file that lists some, got {place}")
    return list(dict.fromkeys(found))


def _report_orphans(folder: Path, files: Sequence[Path], faults: Faults) -> None:
    """Report labels without an image, which the figures would silently omit."""
    beside = _label_file(folder / "any.jpg").parent
    known = {_label_file(file) for file in files} | {beside / "classes.txt"}
    for orphan in sorted(set(beside.rglob("*.txt")) - known) if beside != folder else ():
        faults.add(str(orphan), "there is no image of that name")


def _lines(file: Path, faults: Faults) -> list[tuple[str, str, list[float]]]:
    """Return place, class and numbers of each line; an image without a label file has no objects."""
    path = _label_file(file)
    found: list[tuple[str, str, list[float]]] = []
    for place, line in lines_of(path) if path.is_file() else ():
        number, *words = line.split()
        values = numbers(words, place, faults)
        if values is None:
            continue
        if len(values) == _BOX or (len(values) >= _SMALLEST_POLYGON and len(values) % 2 == 0):
            found.append((place, number, values))
        else:
            expected = "a class and 4 numbers of a box, 8 of a turned box, or an even number of a polygon"
            faults.add(place, f"Expected {expected}, got {len(values)} numbers")
    return found


def _label_file(file: Path) -> Path:
    parts = file.parts
    for index in reversed(range(len(parts) - 1)):
        if parts[index] == "images":
            return Path(*parts[:index], "labels", *parts[index + 1 :]).with_suffix(".txt")
    return file.with_suffix(".txt")


def _task(counts: set[int]) -> TaskType:
    if counts <= {_BOX}:
        return TaskType.OBJECT_DETECTION
    return TaskType.ORIENTED_OBJECT_DETECTION if counts == {_TURNED} else TaskType.IMAGE_SEGMENTATION


def _object(
    line: tuple[str, str, list[float]], labels: Sequence[str], size: tuple[int, int], task: TaskType, faults: Faults
) -> LabelledObject | None:
    place, number, values = line
    if not number.isdecimal() or len(number) > _DIGITS or int(number) >= len(labels):
        faults.add(place, f"Expected a class from 0 to {len(labels) - 1}, got {brief(number)}")
        return None
    if not all(-_MARGIN <= value <= 1 + _MARGIN for value in values):
        faults.add(place, f"Expected fractions of the image, 0..1, got {brief(values)}")
        return None
    if (len(values) == _BOX) != (task is TaskType.OBJECT_DETECTION):
        given = "a box" if len(values) == _BOX else "points"
        faults.add(place, f"Expected every line to be of {task}, got {given}")
        return None
    label, (width, height) = labels[int(number)], size
    if len(values) == _BOX:
        cx, cy, w, h = values
        if not w or not h:
            faults.leave_out(place)
            return None
        box = ((cx - w / 2) * width, (cy - h / 2) * height, (cx + w / 2) * width, (cy + h / 2) * height)
        return LabelledObject(label=label, box=box, place=place)
    ring: Ring = tuple((x * width, y * height) for x, y in zip(values[::2], values[1::2], strict=True))
    if width and not area_of(ring):
        faults.leave_out(place)
        return None
    xs, ys = zip(*ring, strict=True)
    if task is TaskType.ORIENTED_OBJECT_DETECTION:
        return LabelledObject(label=label, corners=ring, place=place)
    return LabelledObject(
        label=label, box=(min(xs), min(ys), max(xs), max(ys)), rings=(ring,), even_odd=True, place=place
    )


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.as_posix()
