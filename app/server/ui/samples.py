"""Provide sample images for the page: those of `--demo`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from app.server.ui.page_files import PageFile, image_file
from app.settings.server import DEMO_IMAGES
from tasks.task import Geometry, TaskType

SAMPLES = DEMO_IMAGES

_SAMPLE_GEOMETRIES: Mapping[str, Sequence[Geometry | None]] = {
    "scene.jpg": ("box", "contour"),
    "shape.jpg": (None, "box", "contour"),
    "oriented.jpg": ("oriented",),
    "photo.jpg": ("box", "contour", None, "oriented"),
}
"""The geometries of the image tasks that each sample suits. The page opens with the first that suits the model."""


class PageSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample image.

    Attributes:
        name: file name.
        task_types: task types that this image suits.
    """

    name: str
    task_types: Sequence[TaskType]


def samples(folder: Path = SAMPLES) -> Sequence[PageSample]:
    """Return the available samples."""
    of_images = [task_type for task_type in TaskType if task_type.takes in ("image", "question")]
    return [
        PageSample(name=name, task_types=[task_type for task_type in of_images if task_type.geometry in geometries])
        for name, geometries in _SAMPLE_GEOMETRIES.items()
        if (folder / name).is_file()
    ]


def read_sample(name: str, folder: Path = SAMPLES) -> PageFile | None:
    """Return the sample image called `name`, or None if it does not exist."""
    if name not in _SAMPLE_GEOMETRIES or not (folder / name).is_file():
        return None
    return image_file(folder / name)
