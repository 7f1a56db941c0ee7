"""Read image files, and choose images of a folder."""

import random
import re
from collections.abc import Sequence
from pathlib import Path

from app.evaluation.datasets.files import list_images
from app.settings.model import ModelError
from tasks.inference.error import InferenceError
from tasks.vision.header import image_size

__all__ = ("choose_images", "read_image")

_RECORDED = re.compile(r"[0-9a-f]{64}")
"""The file name of a recorded image: its digest."""


def choose_images(folder: Path, limit: int) -> Sequence[Path]:
    """Return at most `limit` images below `folder`, chosen at random, but the same in every run.

    Args:
        folder: images, or the folder of ``--record-images``.
        limit: maximum number.

    Raises:
        ModelError: when the folder has no images.
    """
    files = list_images(folder) or sorted(path for path in folder.rglob("*") if _RECORDED.fullmatch(path.name))
    if not files:
        raise ModelError(f"There are no images in {folder}")
    return random.Random(0).sample(files, min(limit, len(files)))  # noqa: S311  not for security


def read_image(file: Path) -> bytes:
    """Return the content of an image file.

    Raises:
        ModelError: when it is not an image of an accepted format.
    """
    data = file.read_bytes()
    try:
        image_size(data)
    except InferenceError as error:
        raise ModelError(f"{file}: {error}") from None
    return data
