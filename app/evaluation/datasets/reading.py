"""Read a dataset of any format, and detect the format."""

from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec

from app.evaluation.dataset import Dataset, Faults
from app.evaluation.datasets.coco import read_coco
from app.evaluation.datasets.dota import label_folder, read_dota
from app.evaluation.datasets.files import pictures_in
from app.evaluation.datasets.image_folder import read_image_folder
from app.evaluation.datasets.questions import read_questions
from app.evaluation.datasets.yolo import read_yolo, yolo_file
from app.evaluation.extras import EvaluationError
from tasks.task import TaskType

__all__ = ("DatasetFormat", "DatasetOptions", "read_dataset")

DatasetFormat = Literal["image-folder", "coco", "yolo", "dota", "vqa"]
_FORMATS = "a folder of images for each class, COCO's JSON, YOLO's data.yaml, DOTA's labelTxt, or questions as .jsonl"


class DatasetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options to read a dataset.

    Attributes:
        format: the format, instead of detecting it.
        images: the folder of images (COCO, DOTA, questions).
        split: the split (YOLO).
        task: the task to measure, if labels allow several.
        skip_bad: skip labels and images that cannot be used.
    """

    format: DatasetFormat | None = None
    images: Path | None = None
    split: str | None = None
    task: TaskType | None = None
    skip_bad: bool = False


def read_dataset(path: Path, options: DatasetOptions = DatasetOptions()) -> Dataset:  # noqa: B008
    """Read the dataset at `path`, a folder or a file.

    Raises:
        EvaluationError: when it is missing, empty, or has invalid labels; lists the file and line of each.
    """
    if not path.exists():
        raise EvaluationError(f"{path}: there is no such file or folder")
    kind, at = (options.format, path) if options.format else _recognised(path)
    faults = Faults(lenient=options.skip_bad)
    dataset = _read(kind, _file(kind, at), options, faults)
    if not dataset.items:
        raise EvaluationError(f"{path}: Expected labelled images as {kind}, got none")
    repeated = [name for name, count in Counter(item.id for item in dataset.items).items() if count > 1]
    if repeated:
        raise EvaluationError(f"{path}: Expected each image once, got {repeated[0]} again")
    return _narrowed(dataset, options.task)


def _read(kind: DatasetFormat, path: Path, options: DatasetOptions, faults: Faults) -> Dataset:
    if path.is_file() == (kind in ("image-folder", "dota")):
        raise EvaluationError(f"{path}: Expected {_FORMATS}; as {kind} it cannot be read")
    match kind:
        case "image-folder":
            return read_image_folder(path, faults)
        case "coco":
            return read_coco(path, faults, options.images)
        case "yolo":
            return read_yolo(path, faults, options.split, options.task)
        case "dota":
            return read_dota(path, faults, options.images)
        case "vqa":
            return read_questions(path, faults, options.images)


def _recognised(path: Path) -> tuple[DatasetFormat, Path]:
    if path.is_file():
        kinds: dict[str, DatasetFormat] = {".json": "coco", ".yaml": "yolo", ".yml": "yolo", ".jsonl": "vqa"}
        if path.suffix in kinds:
            return kinds[path.suffix], path
    elif yolo_file(path):
        return "yolo", path
    elif label_folder(path):
        return "dota", path
    elif _one(path, "*.json"):
        return "coco", path
    elif _one(path, "*.jsonl"):
        return "vqa", path
    elif any(pictures_in(entry) for entry in path.iterdir() if entry.is_dir()):
        return "image-folder", path
    raise EvaluationError(f"{path}: Expected {_FORMATS}, got none of them")


def _file(kind: DatasetFormat, path: Path) -> Path:
    """Return the label file of a folder, for formats with a single one."""
    if path.is_file() or kind in ("image-folder", "dota"):
        return path
    found = yolo_file(path) if kind == "yolo" else _one(path, "*.json" if kind == "coco" else "*.jsonl")
    if found is None:
        raise EvaluationError(f"{path}: Expected {_FORMATS}; as {kind} it cannot be read")
    return found


def _one(path: Path, pattern: str) -> Path | None:
    """Return the only label file in a folder or its ``annotations``.

    Raises:
        EvaluationError: when there are several.
    """
    found = sorted([*path.glob(pattern), *path.glob(f"annotations/{pattern}")])
    found = [file for file in found if file.name != "metadata.jsonl"]
    if len(found) > 1:
        names = ", ".join(file.relative_to(path).as_posix() for file in found[:5])
        raise EvaluationError(f"{path}: Expected one file of labels, got {names}; name the one that is meant")
    return found[0] if found else None


def _narrowed(dataset: Dataset, task: TaskType | None) -> Dataset:
    if task is None:
        return dataset
    if task not in dataset.tasks:
        could = " and ".join(dataset.tasks)
        raise EvaluationError(f"{dataset.path}: Expected labels of {task}, got {dataset.format} labels, of {could}")
    return msgspec.structs.replace(dataset, tasks=(task,))
