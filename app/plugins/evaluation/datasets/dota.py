"""Read DOTA's text labels of oriented boxes: ``x1 y1 x2 y2 x3 y3 x4 y4 category difficult``, in pixels.

A file may begin with lines ``imagesource:...`` and ``gsd:...``, which become metadata of the image.
"""

from pathlib import Path

from app.core.cli.inputs import list_images
from app.plugins.evaluation.dataset import Dataset, EmptyObjectError, EvaluationError, Item, LabelErrors, LabelledObject
from app.plugins.evaluation.datasets.files import (
    DatasetOptions,
    parse_number,
    read_item,
    read_lines,
    read_sidecar,
    ring_area,
)
from tasks.inference.error import quote_value
from tasks.task import TaskType

_HEADERS = ("imagesource", "gsd")
_CORNERS = 8


def label_folder(path: Path) -> Path | None:
    """Return the folder of labels in `path`, or None if it is not a DOTA dataset."""
    return min((entry for entry in path.glob("labelTxt*") if entry.is_dir()), default=None)


def read_dota(path: Path, errors: LabelErrors, options: DatasetOptions) -> Dataset:
    """Read the images of ``images/`` and the labels of ``labelTxt/``. Difficult objects are ignored objects."""
    folder = label_folder(path)
    if folder is None:
        raise EvaluationError(f"{path}: Expected a folder labelTxt with DOTA's labels, got none")
    metadata = read_sidecar(path, errors)
    root = options.images or (path / "images" if (path / "images").is_dir() else path)
    files: dict[str, Path] = {}
    for file in list_images(root):
        if file.stem in files:
            errors.add(str(file), f"there is {files[file.stem]} of the same name")
        files.setdefault(file.stem, file)
    for orphan in sorted({file.stem for file in folder.glob("*.txt")} - set(files)):
        errors.add(str(folder / f"{orphan}.txt"), "there is no image of that name")
    items: list[Item] = []
    for stem, file in files.items():
        labels = folder / f"{stem}.txt"
        if not labels.is_file():
            errors.add(str(file), f"there are no labels {labels}")
            continue
        objects, header = _read_labels(labels, errors)
        row = {**header, **metadata.get(file.name, {})}
        if item := read_item(file.name, file, errors, objects=tuple(objects), metadata=row):
            items.append(item)
    difficult = sum(label.ignored for item in items for label in item.objects)
    return Dataset(
        path=path,
        format="dota",
        tasks=(TaskType.ORIENTED_OBJECT_DETECTION,),
        labels=tuple(sorted({label.label for item in items for label in item.objects})),
        items=tuple(items),
        notes=(f"{difficult} difficult objects are neither to be found nor wrong to find",) if difficult else (),
    )


def _read_labels(path: Path, errors: LabelErrors) -> tuple[list[LabelledObject], dict[str, str]]:
    objects: list[LabelledObject] = []
    header: dict[str, str] = {}
    for location, line in read_lines(path):
        key, colon, value = line.partition(":")
        if colon and key.lower() in _HEADERS:
            header[key.lower()] = value.strip()
            continue
        with errors.collected(location):
            objects.append(_object(location, line.split()))
    return objects, header


def _object(location: str, words: list[str]) -> LabelledObject:
    if len(words) not in (_CORNERS + 1, _CORNERS + 2):
        expected = "8 coordinates, a category and 0 or 1 for difficult"
        raise ValueError(f"Expected {expected}, got {len(words)} words: {quote_value(' '.join(words))}")
    values = [parse_number(word) for word in words[:_CORNERS]]
    label, difficult = [*words[_CORNERS:], "0"][:2]
    if difficult not in ("0", "1", "2"):
        raise ValueError(f"Expected 0 or 1 for difficult, got {quote_value(difficult)}")
    corners = tuple(zip(values[::2], values[1::2], strict=True))
    if not ring_area(corners):
        raise EmptyObjectError
    return LabelledObject(label=label, rings=(corners,), ignored=difficult != "0", location=location)
