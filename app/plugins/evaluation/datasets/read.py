"""Read a dataset of any format, and detect the format."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from app.inputs import list_images
from app.plugins.evaluation.dataset import Dataset, EvaluationError, LabelErrors
from app.plugins.evaluation.datasets.coco import read_coco
from app.plugins.evaluation.datasets.files import DatasetFormat, DatasetOptions, read_item, rows_of
from app.plugins.evaluation.datasets.yolo import find_yolo_file, read_yolo
from tasks.task import TaskType

_EXPECTED = "a folder of images for each class, COCO's JSON, or YOLO's data.yaml"


def read_dataset(path: Path, options: DatasetOptions = DatasetOptions()) -> Dataset:  # noqa: B008
    """Read a dataset in a folder or a file.

    Raise EvaluationError when it is missing, empty, or has invalid labels; lists the file and line of each. Raise it
    also for an option that its format does not use.
    """
    if not path.exists():
        raise EvaluationError(f"{path}: there is no such file or folder")
    errors = LabelErrors(lenient=options.skip_bad)
    read, found = _find(path, options.format)
    dataset = read(found, errors, options)
    for option, value, used_by in (("--split", options.split, "yolo"), ("--images", options.images, "coco")):
        if value is not None and dataset.format != used_by:
            raise EvaluationError(f"{option}: no effect on {dataset.format}; it is for {used_by}")
    dataset = msgspec.structs.replace(dataset, notes=(*errors.notes(), *dataset.notes))
    if not dataset.items:
        lines = (f"{path}: Expected labelled images as {dataset.format}, got none", *dataset.notes)
        raise EvaluationError("\n  ".join(lines))
    task, tasks = options.task, dataset.tasks
    if task is not None and task not in tasks:
        got = f"{dataset.format} labels, of {' and '.join(tasks)}"
        raise EvaluationError(f"{dataset.path}: Expected labels of {task}, got {got}")
    return msgspec.structs.replace(dataset, tasks=tasks if task is None else (task,))


def read_image_folder(path: Path, errors: LabelErrors, _: DatasetOptions) -> Dataset:
    """Read the images under `path`; the name of the first folder under `path` is the class."""
    files = {file.relative_to(path).as_posix(): file for folder in _class_folders(path) for file in list_images(folder)}
    rows = rows_of(files, path, errors)
    read = (
        read_item(name, file, errors, label=name.partition("/")[0], metadata=rows[name]) for name, file in files.items()
    )
    items = tuple(filter(None, read))
    labels = tuple(dict.fromkeys(item.label for item in items))
    tasks = (TaskType.IMAGE_CLASSIFICATION,)
    return Dataset(path=path, format="image-folder", tasks=tasks, labels=labels, items=items)


_Reader = Callable[[Path, LabelErrors, DatasetOptions], Dataset]


def _find(path: Path, wanted: DatasetFormat | None) -> tuple[_Reader, Path]:
    """Return the reader of a dataset, and what it takes: a folder, or a file, which may be in the folder `path`."""
    for name, (endings, find, read) in _FORMATS.items():
        if wanted not in (None, name):
            continue
        if path.is_file() and (path.suffix.lower() in endings or (wanted and endings)):
            return read, path
        if path.is_dir() and (found := find(path)):
            return read, found
    got = ", got none of them" if wanted is None else f"; as {wanted} it cannot be read"
    raise EvaluationError(f"{path}: Expected {_EXPECTED}{got}")


def _single_file(pattern: str, path: Path) -> Path | None:
    """Return the only label file in a folder or its ``annotations``. Raise `EvaluationError` if there are several."""
    files = sorted([*path.glob(pattern), *path.glob(f"annotations/{pattern}")])
    if len(files) > 1:
        names = ", ".join(file.relative_to(path).as_posix() for file in files[:5])
        raise EvaluationError(f"{path}: Expected one file of labels, got {names}; name the one that is meant")
    return files[0] if files else None


def _class_folders(path: Path) -> Sequence[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


_FORMATS: Mapping[DatasetFormat, tuple[Sequence[str], Callable[[Path], Path | None], _Reader]] = {
    "yolo": ((".yaml", ".yml"), find_yolo_file, read_yolo),
    "coco": ((".json",), partial(_single_file, "*.json"), read_coco),
    "image-folder": ((), lambda path: path if any(map(list_images, _class_folders(path))) else None, read_image_folder),
}
"""By format, the endings of its files, what its reader takes in a folder, and the reader; in the order of detection."""
