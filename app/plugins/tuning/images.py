"""Choose images that a command tries a model on."""

import random
import re
from collections.abc import Sequence
from pathlib import Path

from app.core.cli.inputs import list_images
from app.core.settings.model import ModelError

_RECORDED = re.compile(r"[0-9a-f]{64}")
"""The file name of a recorded image: its digest."""


def choose_images(folder: Path, limit: int) -> Sequence[Path]:
    """Return at most `limit` images below `folder`, chosen at random, but the same in every run.

    The folder can be that of ``--record-images``. One without images is a `ModelError`.
    """
    files = list_images(folder) or sorted(path for path in folder.rglob("*") if _RECORDED.fullmatch(path.name))
    if not files:
        raise ModelError(f"There are no images in {folder}")
    return random.Random(0).sample(files, min(limit, len(files)))  # noqa: S311  not for security
