"""Pictures to try a model with, one click away: those of the fixtures, where the server runs from its repository."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from app.server.page.files import PageFile, picture_file
from tasks.task import TaskType

__all__ = ("SAMPLES", "Sample", "read_sample", "samples")

SAMPLES = Path(__file__).parents[3] / "fixtures" / "images"

_TASKS: Mapping[str, Sequence[TaskType]] = {
    "scene.jpg": (TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION),
    "shape.jpg": (TaskType.IMAGE_CLASSIFICATION, TaskType.IMAGE_TEXT_TO_TEXT),
    "oriented.jpg": (TaskType.ORIENTED_OBJECT_DETECTION,),
    "photo.jpg": (),
}


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A picture.

    Attributes:
        name: of its file.
        task_types: for which it is the one to begin with.
    """

    name: str
    task_types: Sequence[TaskType]


def samples(folder: Path = SAMPLES) -> Sequence[Sample]:
    """Those that there are."""
    return [Sample(name=name, task_types=tasks) for name, tasks in _TASKS.items() if (folder / name).is_file()]


def read_sample(name: str, folder: Path = SAMPLES) -> PageFile | None:
    """The picture called `name`; None when there is no such sample."""
    if name not in _TASKS or not (folder / name).is_file():
        return None
    return picture_file(folder / name)
