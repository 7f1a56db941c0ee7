"""Read labelled images of a source of another plugin: a manifest, a glob, tar files of WebDataset, or a URL."""

import atexit
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from app.plugins.evaluation.dataset import Dataset, Item, LabelErrors
from app.plugins.evaluation.datasets.files import DatasetOptions, read_item
from app.plugins.recording.sources import SourceImage, open_source
from tasks.task import TaskType

_LABELS = ("label", "class", "cls")
"""Names of the column or, in WebDataset, the ending of the file with the class."""


def open_images(dataset: str, options: DatasetOptions) -> Iterable[SourceImage] | None:
    """Return the images of a dataset that another plugin reads; None for other datasets."""
    return None if options.format or _has_questions(Path(dataset)) else open_source(dataset)


def read_source(dataset: str, images: Iterable[SourceImage], errors: LabelErrors) -> Dataset:
    """Read images, copied if they are no local files. The class is a column, or else the first folder of the name."""
    folder = Path(tempfile.mkdtemp(prefix="charioteer-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    items: list[Item] = []
    for image in images:
        texts = {entry.key: str(entry.value) for entry in image.metadata}
        first_folder = image.name.partition("/")[0] if image.location and "/" in image.name else ""
        label = next((texts.pop(key) for key in _LABELS if key in texts), first_folder)
        try:
            path = Path(image.location)
            if not image.location or "://" in image.location:
                path = folder / image.digest
                path.write_bytes(image.read())
        except OSError as error:
            errors.add(image.name, str(error))
            continue
        if not label:
            errors.add(image.name, f"Expected its class in one of {', '.join(_LABELS)}, or a folder of its class")
        elif item := read_item(image.name, path, errors, label=label, metadata=texts):
            items.append(item)
    return Dataset(
        path=Path(dataset),
        format="source",
        tasks=(TaskType.IMAGE_CLASSIFICATION,),
        labels=tuple(sorted({item.label for item in items})),
        items=tuple(items),
    )


def _has_questions(path: Path) -> bool:
    """Return whether a file of JSON lines has questions, or no objects: these have a reader of their own."""
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    with path.open("rb") as lines:
        try:
            first = msgspec.json.decode(lines.readline(), type=dict[str, object])
            return not first.keys().isdisjoint(("question", "answer", "answers"))
        except msgspec.DecodeError:
            return True
