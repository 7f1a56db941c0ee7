"""Export objects with their images as a dataset in Ultralytics' format, for training and annotation tools."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image
import yaml

from app.core.settings.server import SettingsError
from app.plugins.recording.images import read_recorded_image
from app.plugins.recording.inference import Batches, Exported, RecordedImage
from tasks.shapes import read_outlines
from tasks.task import GEOMETRIES, Geometry

_ENDINGS = {"jpeg2000": "jp2", "mpo": "jpg"}
"""The usual endings of Pillow's formats with other names. Phones write JPEGs with several images (MPO)."""

_HALF_PIXEL = 0.5
"""Offset: YOLO measures from the edge of the first pixel, contours from its centre."""


def write_yolo(batches: Batches, folder: Path, images: Path) -> Exported:
    """Write ``data.yaml``, ``images/`` and ``labels/`` into a new folder, which appears when it is complete.

    All objects are of the first task. A line is a box, four corners, or the longest outline of an object. Of several
    inferences of one image, the first counts. Inferences without objects of this task or without a readable image are
    left out. Raise SettingsError when the folder exists. Raise OSError when it cannot be written.
    """
    if folder.exists():
        raise SettingsError(f"--to: Expected a new folder, got {folder}, which exists")
    labels: dict[str, int] = {}
    seen: set[str] = set()
    chosen: Geometry | None = None
    changes = Counter[str]()
    left_out = 0
    with tempfile.TemporaryDirectory(prefix=f".{folder.name[:100]}.", dir=folder.parent) as temporary:
        part = Path(temporary) / "part"
        for name in ("images", "labels"):
            (part / name).mkdir(parents=True)
        for inference in (inference for batch in batches for inference in batch):
            image, geometry = inference.image, GEOMETRIES.get(inference.task_type)
            data = read_recorded_image(images, image) or b""
            ending = _ending(data)
            is_usable = inference.records is not None and geometry == (chosen or geometry)
            if image is None or not ending or geometry is None or not is_usable or image.digest in seen:
                left_out += 1
                continue
            chosen = geometry
            seen.add(image.digest)
            (part / "images" / f"{image.digest}.{ending}").write_bytes(data)
            lines = "".join(_lines(inference.records or (), geometry, image, labels, changes))
            (part / "labels" / f"{image.digest}.txt").write_text(lines)
        names = {number: label for label, number in labels.items()}
        description = yaml.safe_dump({"train": "images", "val": "images", "names": names}, allow_unicode=True)
        (part / "data.yaml").write_text(description, encoding="utf-8")
        shutil.move(part, folder)
    return Exported(written=len(seen), left_out=left_out, changed_objects=changes)


def _ending(data: bytes) -> str:
    """Return the ending of the file name of an image, empty if Pillow cannot read it."""
    # Only the header is read, so Pillow's limit does not apply.
    PIL.Image.MAX_IMAGE_PIXELS = None
    with suppress(Exception), PIL.Image.open(BytesIO(data)) as image:
        name = (image.format or "").lower()
        return _ENDINGS.get(name, name)
    return ""


def _lines(
    records: Sequence[Mapping[str, object]],
    geometry: Geometry,
    image: RecordedImage,
    labels: dict[str, int],
    changes: Counter[str],
) -> Sequence[str]:
    """Return the lines of an image: the number of a label, and fractions of width and height."""
    lines: list[str] = []
    for shape, rings in read_outlines(geometry, records, image.width, image.height, changes):
        ring = max(rings, key=len)
        if len(ring) < 3:
            changes["left out: YOLO needs outlines of three points"] += 1
            continue
        if len(rings) > 1:
            changes["written with the longest outline only: YOLO has neither holes nor several parts"] += 1
        fractions = (ring + (_HALF_PIXEL if geometry == "contour" else 0)) / (image.width, image.height)
        points = np.clip(fractions, 0, 1)
        if geometry == "oriented" and (points != fractions).any():
            changes["cut off at the border of the image, so no rectangle: YOLO has no corners outside"] += 1
        if geometry == "box":
            low, high = points.min(axis=0), points.max(axis=0)
            points = np.concatenate([(low + high) / 2, high - low])
        number = labels.setdefault(shape.label, len(labels))
        lines.append(" ".join([str(number), *(f"{value:.6f}" for value in points.ravel())]) + "\n")
    return lines
