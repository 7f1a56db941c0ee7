"""Read the text labels of Ultralytics (YOLO).

A line is a class number of ``data.yaml``, and ``cx cy w h`` (boxes), four corners (oriented boxes) or at least three
points (polygons) in fractions of the image. If ``data.yaml`` has ``kpt_shape``, keypoints follow the box; they are not
measured. Without ``data.yaml``, ``classes.txt`` names the classes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from app.core.runtimes.label_files import read_name
from app.inputs import list_images
from app.plugins.evaluation.dataset import Dataset, EmptyObjectError, EvaluationError, Item, LabelErrors, LabelledObject
from app.plugins.evaluation.datasets.files import (
    DatasetOptions,
    as_list,
    bounding_box,
    find_file,
    parse_number,
    read_image_size,
    read_lines,
    ring_area,
    rows_of,
    with_slashes,
)
from tasks.inference.error import quote_value
from tasks.task import TaskType

_CLASSES = "classes.txt"
_SPLITS = ("val", "test", "train")
_BOX, _ORIENTED_BOX, _SMALLEST_POLYGON = 4, 8, 6
_DIGITS = 9
_ZEROS = re.compile(r"\.0*$")
_MARGIN = 0.01
"""Tolerance of coordinates outside the image, as a fraction, because exporters round."""


def find_yolo_file(path: Path) -> Path | None:
    """Return the ``data.yaml`` or ``classes.txt`` in the folder `path`, or None if it is not a YOLO dataset."""
    files = (path / name for name in ("data.yaml", "data.yml", "dataset.yaml", _CLASSES))
    file = next((file for file in files if file.is_file()), None)
    return None if file and file.name == _CLASSES and not _has_labels(path) else file


def _has_labels(path: Path) -> bool:
    return (path / "labels").is_dir() or any(file.with_suffix(".txt").is_file() for file in list_images(path))


def read_yolo(path: Path, errors: LabelErrors, options: DatasetOptions) -> Dataset:
    """Read one split of the dataset of a ``data.yaml``, or the images beside a ``classes.txt``.

    Lines with four points are oriented boxes, unless the options name another task, or other lines have other counts.
    Raise `EvaluationError` if the dataset cannot be used.
    """
    description = _read_description(path)
    labels = _labels(path, description.get("names"))
    split_name = options.split or next((name for name in _SPLITS if description.get(name)), None)
    if split_name is None or not description.get(split_name):
        raise EvaluationError(f"{path}: Expected a split {options.split or ', '.join(_SPLITS)}, got none")
    root = path.parent / str(description.get("path") or "")
    files = _image_files(path, root if root.is_dir() else path.parent, description[split_name], errors)
    named = {
        (file.relative_to(path.parent) if file.is_relative_to(path.parent) else file).as_posix(): file for file in files
    }
    rows = rows_of(named, path.parent, errors)
    keypoints = _keypoint_numbers(path, description.get("kpt_shape"))
    read = [(read_image_size(file, errors), _read_label_lines(file, keypoints, errors)) for file in files]
    counts = {len(values) for _, lines in read for _, _, values in lines}
    measured_task = options.task or _task(counts)
    items: list[Item] = []
    for (name, file), ((width, height), lines) in zip(named.items(), read, strict=True):
        objects: list[LabelledObject] = []
        for line in lines:
            with errors.collected(line[0]):
                objects.append(_object(line, labels, (width, height), measured_task))
        fields: dict[str, Any] = {"objects": tuple(objects), "metadata": rows[name]}
        if width:
            items.append(Item(id=name, image=file, width=width, height=height, **fields))
    tasks = (measured_task,)
    if not counts:
        # Images without objects, as in an export of inferences that found none, fit models of every task.
        tasks = tuple(task for task in TaskType if task.geometry)
    elif measured_task is not TaskType.OBJECT_DETECTION:
        tasks = (measured_task, TaskType.OBJECT_DETECTION)
    unlabelled = sum(not _label_file(file).is_file() for file in files)
    notes: list[str] = []
    if unlabelled:
        notes.append(f"{unlabelled} of {len(files)} images have no label file: they count as images without objects")
    if keypoints:
        notes.append("The keypoints of the labels are not measured, only their boxes")
    return Dataset(path=path, format="yolo", tasks=tasks, labels=tuple(labels), items=tuple(items), notes=tuple(notes))


def _read_description(path: Path) -> Mapping[str, Any]:
    if path.name == _CLASSES:
        folder = "images" if (path.parent / "images").is_dir() else "."
        return {"names": [line for _, line in read_lines(path)], "val": folder}
    try:
        description: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, AttributeError, LookupError, RecursionError) as error:
        raise EvaluationError(f"{path}: Expected YAML: {error}") from None
    if not isinstance(description, dict):
        raise EvaluationError(f"{path}: Expected names and splits, got {quote_value(description)}")
    return cast("dict[str, Any]", description)


def _labels(path: Path, names: object) -> list[str]:
    name_list = as_list(names)
    if isinstance(names, dict):
        by_number = {str(key): name for key, name in cast("dict[object, object]", names).items()}
        numbers = [str(number) for number in range(len(by_number))]
        name_list = [by_number[number] for number in numbers] if by_number.keys() == {*numbers} else None
    labels = [name for name in map(read_name, name_list or ()) if name is not None]
    if name_list is None or len(labels) < len(name_list):
        raise EvaluationError(f"{path}: names: Expected a list of names, or names by numbers from 0 on")
    if len(set(labels)) < len(labels):
        raise EvaluationError(f"{path}: names: Expected each name once, got {quote_value(labels)}")
    return labels


def _image_files(path: Path, root: Path, value: object, errors: LabelErrors) -> list[Path]:
    files: list[Path] = []
    for entry in as_list(value) or [value]:
        name = str(entry) if (root / str(entry)).exists() else with_slashes(str(entry))
        location = root / name
        if not location.exists() and name.startswith("../"):
            # Roboflow's paths are relative to a sibling folder of ``data.yaml``; ultralytics reads them so too.
            location = root / name[3:]
        if location.is_dir():
            images = list_images(location)
            _report_orphans(location, images, errors)
            files += images
        elif location.is_file():
            files += [find_file(location.parent, line) for _, line in read_lines(location)]
        else:
            raise EvaluationError(f"{path}: Expected a folder of images, or a file that lists some, got {location}")
    return list(dict.fromkeys(files))


def _report_orphans(folder: Path, files: Sequence[Path], errors: LabelErrors) -> None:
    """Report labels without an image, which the figures would silently omit."""
    label_folder = _label_file(folder / "any.jpg").parent
    known = {_label_file(file) for file in files} | {label_folder / _CLASSES}
    for orphan in sorted(set(label_folder.rglob("*.txt")) - known) if label_folder != folder else ():
        errors.add(str(orphan), "there is no image of that name")


def _keypoint_numbers(path: Path, shape: object) -> int:
    """Return how many numbers of keypoints follow the box of a line, by ``kpt_shape``."""
    match shape:
        case None:
            return 0
        case [int(points), int(numbers)] if points > 0 and numbers in (2, 3):
            return points * numbers
        case _:
            raise EvaluationError(f"{path}: kpt_shape: Expected [points, 2 or 3], got {quote_value(shape)}")


def _read_label_lines(file: Path, keypoints: int, errors: LabelErrors) -> list[tuple[str, str, list[float]]]:
    """Return location, class and numbers of each line, without its keypoints.

    An image without a label file has no objects.
    """
    path = _label_file(file)
    parsed: list[tuple[str, str, list[float]]] = []
    for location, line in read_lines(path) if path.is_file() else ():
        number, *words = line.split()
        with errors.collected(location):
            values = [parse_number(word) for word in words]
            if keypoints:
                if len(values) != _BOX + keypoints:
                    expected = f"a class, 4 numbers of a box and {keypoints} of keypoints (kpt_shape)"
                    raise ValueError(f"Expected {expected}, got {len(values)} numbers")
                del values[_BOX:]
            elif len(values) != _BOX and (len(values) < _SMALLEST_POLYGON or len(values) % 2):
                expected = "a class and 4 numbers of a box, 8 of an oriented box, or an even number of a polygon"
                raise ValueError(f"Expected {expected}, got {len(values)} numbers")
            parsed.append((location, number, values))
    return parsed


def _label_file(file: Path) -> Path:
    parts = file.parts
    for index in reversed(range(len(parts) - 1)):
        if parts[index] == "images":
            return Path(*parts[:index], "labels", *parts[index + 1 :]).with_suffix(".txt")
    return file.with_suffix(".txt")


def _task(counts: set[int]) -> TaskType:
    if counts <= {_BOX}:
        return TaskType.OBJECT_DETECTION
    return TaskType.ORIENTED_OBJECT_DETECTION if counts == {_ORIENTED_BOX} else TaskType.IMAGE_SEGMENTATION


def _object(
    line: tuple[str, str, list[float]], labels: Sequence[str], size: tuple[int, int], task: TaskType
) -> LabelledObject:
    location, number, values = line
    # Exporters that write all columns as floats write 1.0 or 1.000000 for class 1.
    number = _ZEROS.sub("", number)
    if not number.isdecimal() or len(number) > _DIGITS or int(number) >= len(labels):
        expected = f"a class from 0 to {len(labels) - 1}" if labels else "a class of data.yaml, whose names are empty"
        raise ValueError(f"Expected {expected}, got {quote_value(number)}")
    if not all(-_MARGIN <= value <= 1 + _MARGIN for value in values):
        raise ValueError(f"Expected fractions of the image, 0..1, got {quote_value(values)}")
    if len(values) == _BOX and task is not TaskType.OBJECT_DETECTION:
        raise ValueError(
            f"Expected every line to be of {task}, got a box; --task OBJECT_DETECTION takes the boxes of all"
        )
    label, (width, height) = labels[int(number)], size
    if len(values) == _BOX:
        cx, cy, w, h = values
        if not w or not h:
            raise EmptyObjectError
        box = ((cx - w / 2) * width, (cy - h / 2) * height, (cx + w / 2) * width, (cy + h / 2) * height)
        return LabelledObject(label=label, box=box, location=location)
    ring = tuple((x * width, y * height) for x, y in zip(values[::2], values[1::2], strict=True))
    if width and not ring_area(ring):
        raise EmptyObjectError
    return LabelledObject(label=label, box=bounding_box([ring]), rings=(ring,), location=location)
