"""Read a dataset of any format, and detect the format."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from app.core.cli.inputs import list_images
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item, LabelErrors
from app.plugins.evaluation.datasets.coco import read_coco
from app.plugins.evaluation.datasets.dota import label_folder, read_dota
from app.plugins.evaluation.datasets.files import (
    DatasetFormat,
    DatasetOptions,
    as_list,
    read_item,
    read_json_lines,
    read_sidecar,
    scalar_values,
    sidecar_row,
)
from app.plugins.evaluation.datasets.source import open_images, read_source
from app.plugins.evaluation.datasets.yolo import find_yolo_file, read_yolo
from tasks.inference.error import quote_value
from tasks.task import TaskType

_FORMATS = "a folder of images for each class, COCO's JSON, YOLO's data.yaml, DOTA's labelTxt, or questions as .jsonl"

_RESERVED_KEYS = frozenset({"id", "image", "question", "answer", "answers"})


def read_dataset(source: str | Path, options: DatasetOptions = DatasetOptions()) -> Dataset:  # noqa: B008
    """Read a dataset: a folder, a file, or a source of another plugin.

    Raises:
        EvaluationError: when it is missing, empty, or has invalid labels; lists the file and line of each.
    """
    path, errors = Path(source), LabelErrors(lenient=options.skip_bad)
    if (images := open_images(str(source), options)) is not None:
        dataset = read_source(str(source), images, errors)
    elif path.exists():
        dataset_format = options.format or _detect_format(path)
        dataset = _READERS[dataset_format](_label_file(dataset_format, path), errors, options)
    else:
        raise EvaluationError(f"{source}: there is no such file or folder")
    dataset = msgspec.structs.replace(dataset, notes=(*errors.notes(), *dataset.notes))
    if not dataset.items:
        raise EvaluationError(f"{source}: Expected labelled images as {dataset.format}, got none")
    return _restrict_to_task(dataset, options.task)


def read_image_folder(path: Path, errors: LabelErrors, _: DatasetOptions) -> Dataset:
    """Read the images under `path`; the name of the first folder under `path` is the class."""
    metadata = read_sidecar(path, errors)
    items: list[Item] = []
    labels = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = [(label, file) for label in labels for file in list_images(path / label)]
    names = Counter(file.name for _, file in files)
    for label, file in files:
        name = file.relative_to(path).as_posix()
        row = sidecar_row(metadata, name, file, names)
        if item := read_item(name, file, errors, label=label, metadata=row):
            items.append(item)
    used_labels = {item.label for item in items}
    return Dataset(
        path=path,
        format="image-folder",
        tasks=(TaskType.IMAGE_CLASSIFICATION,),
        labels=tuple(label for label in labels if label in used_labels),
        items=tuple(items),
    )


def read_questions(path: Path, errors: LabelErrors, options: DatasetOptions) -> Dataset:
    """Read JSON lines, each a question: ``{"image": "a.jpg", "question": "...", "answers": ["..."], ...}``.

    ``answer`` is one correct answer, ``answers`` are several; other values are metadata. By default the images are in
    the folder of the file.
    """
    items: list[Item] = []
    seen: set[str] = set()
    for location, line in read_json_lines(path, errors):
        number = location.rpartition(":")[2]
        image, question, answers = line.get("image"), line.get("question"), _answers(line)
        if not isinstance(image, str) or not image:
            errors.add(location, f"image: Expected a file name, got {quote_value(image)}")
        elif not isinstance(question, str) or not question.strip():
            errors.add(location, f"question: Expected a text, got {quote_value(question)}")
        elif answers is None:
            errors.add(location, "Expected answer, a text, or answers, a list of one or more texts")
        else:
            item_id = line.get("id")
            name = str(item_id) if isinstance(item_id, str | int) else f"{image}#{number}"
            if name in seen:
                errors.add(location, f"id: Expected each id once, got {quote_value(name)} again")
                continue
            seen.add(name)
            file = (options.images or path.parent) / image
            metadata = scalar_values(line, _RESERVED_KEYS)
            if item := read_item(name, file, errors, question=question, answers=answers, metadata=metadata):
                items.append(item)
    return Dataset(path=path, format="vqa", tasks=(TaskType.IMAGE_TEXT_TO_TEXT,), items=tuple(items))


def _detect_format(path: Path) -> DatasetFormat:
    if path.is_file():
        formats: dict[str, DatasetFormat] = {".json": "coco", ".yaml": "yolo", ".yml": "yolo", ".jsonl": "vqa"}
        if path.suffix in formats:
            return formats[path.suffix]
    elif find_yolo_file(path):
        return "yolo"
    elif label_folder(path):
        return "dota"
    elif _single_file(path, "*.json"):
        return "coco"
    elif _single_file(path, "*.jsonl"):
        return "vqa"
    elif any(list_images(entry) for entry in path.iterdir() if entry.is_dir()):
        return "image-folder"
    raise EvaluationError(f"{path}: Expected {_FORMATS}, got none of them")


def _label_file(dataset_format: DatasetFormat, path: Path) -> Path:
    """Return what the reader of a format takes: a folder, or a single file, which may be in the folder `path`."""
    takes_folder = dataset_format in ("image-folder", "dota")
    file: Path | None = path
    if path.is_dir() and dataset_format == "yolo":
        file = find_yolo_file(path)
    elif path.is_dir() and not takes_folder:
        file = _single_file(path, "*.json" if dataset_format == "coco" else "*.jsonl")
    if file is None or file.is_file() == takes_folder:
        raise EvaluationError(f"{path}: Expected {_FORMATS}; as {dataset_format} it cannot be read")
    return file


def _single_file(path: Path, pattern: str) -> Path | None:
    """Return the only label file in a folder or its ``annotations``.

    Raises:
        EvaluationError: when there are several.
    """
    files = sorted([*path.glob(pattern), *path.glob(f"annotations/{pattern}")])
    files = [file for file in files if file.name != "metadata.jsonl"]
    if len(files) > 1:
        names = ", ".join(file.relative_to(path).as_posix() for file in files[:5])
        raise EvaluationError(f"{path}: Expected one file of labels, got {names}; name the one that is meant")
    return files[0] if files else None


def _restrict_to_task(dataset: Dataset, task: TaskType | None) -> Dataset:
    if task is None:
        return dataset
    if task not in dataset.tasks:
        possible_tasks = " and ".join(dataset.tasks)
        raise EvaluationError(
            f"{dataset.path}: Expected labels of {task}, got {dataset.format} labels, of {possible_tasks}"
        )
    return msgspec.structs.replace(dataset, tasks=(task,))


def _answers(line: Mapping[str, object]) -> tuple[str, ...] | None:
    value = line.get("answers", line.get("answer"))
    if isinstance(value, str):
        return (value,)
    texts = [text for text in as_list(value) or () if isinstance(text, str)]
    return tuple(texts) if texts and texts == value else None


_READERS: Mapping[DatasetFormat, Callable[[Path, LabelErrors, DatasetOptions], Dataset]] = {
    "image-folder": read_image_folder,
    "coco": read_coco,
    "yolo": read_yolo,
    "dota": read_dota,
    "vqa": read_questions,
}
