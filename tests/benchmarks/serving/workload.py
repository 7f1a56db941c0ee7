"""Write the models and images that all measurements share into a folder."""

import json
from pathlib import Path

import cv2
import msgspec
import numpy as np

from tests.benchmarks.serving.networks import WIDTHS, write_model
from tests.benchmarks.serving.shape import LABELS, SIDE, TOP_K

__all__ = ("PICTURES", "Workload", "make_workload")

_ROOT = Path(__file__).parents[3]
_PHOTO = _ROOT / "fixtures" / "images" / "photo.jpg"

PICTURES = {"vga": (640, 480), "hd": (1280, 720)}
"""Width and height in pixels."""


class Workload(msgspec.Struct, frozen=True):
    """Where everything lies.

    Attributes:
        folder: a model repository: `small` and `medium`, each with its settings.
        pictures: JPEG files by name.
        megaflops: of each model, for one image.
    """

    folder: Path
    pictures: dict[str, Path]
    megaflops: dict[str, float]

    def model(self, name: str) -> Path:
        """The graph of a model."""
        return self.folder / name / "model.onnx"


def make_workload(folder: Path) -> Workload:
    """Write models and images into an empty folder."""
    megaflops: dict[str, float] = {}
    for name, width in WIDTHS.items():
        place = folder / "models" / name
        place.mkdir(parents=True)
        megaflops[name] = write_model(place / "model.onnx", width)
        settings = {
            "task_type": "IMAGE_CLASSIFICATION",
            "labels": LABELS,
            "preprocessing": {"size": [SIDE, SIDE], "resize": "letterbox", "fill": 0},
            "parameters": {"top_k": TOP_K},
        }
        (place / "model-settings.json").write_text(json.dumps(settings))
    pictures = {name: _write_image(folder / f"{name}.jpg", *size) for name, size in PICTURES.items()}
    return Workload(folder / "models", pictures, megaflops)


def _write_image(file: Path, width: int, height: int) -> Path:
    """The fixture photograph, mirrored beside itself to fill the size, with noise that makes it as hard as others."""
    photo = cv2.imread(str(_PHOTO))
    wide = np.hstack([photo, photo[:, ::-1]])
    scale = max(width / wide.shape[1], height / wide.shape[0])
    shown = cv2.resize(wide, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)[:height, :width]
    noise = np.random.default_rng(0).normal(0, 7, shown.shape)
    cv2.imwrite(str(file), np.clip(shown + noise, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 82])
    return file
