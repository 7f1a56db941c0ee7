"""Provide sample images for the page: those of the fixtures, if the server runs from its repository."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from app.server.ui.page_files import PageFile, image_file
from tasks.task import TaskType

__all__ = ("SAMPLES", "PageSample", "read_sample", "samples")

SAMPLES = Path(__file__).parents[3] / "fixtures" / "images"

_SAMPLE_TASKS: Mapping[str, Sequence[TaskType]] = {
    "scene.jpg": (TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION),
    "shape.jpg": (TaskType.IMAGE_CLASSIFICATION, TaskType.IMAGE_TEXT_TO_TEXT),
    "oriented.jpg": (TaskType.ORIENTED_OBJECT_DETECTION,),
    "photo.jpg": (),
}


class PageSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample image.

    Attributes:
        name: file name.
        task_types: task types that show this image first.
    """

    name: str
    task_types: Sequence[TaskType]


def samples(folder: Path = SAMPLES) -> Sequence[PageSample]:
    """Return the available samples."""
    return [
        PageSample(name=name, task_types=tasks) for name, tasks in _SAMPLE_TASKS.items() if (folder / name).is_file()
    ]


def read_sample(name: str, folder: Path = SAMPLES) -> PageFile | None:
    """Return the sample image called `name`, or None if it does not exist."""
    if name not in _SAMPLE_TASKS or not (folder / name).is_file():
        return None
    return image_file(folder / name)
