"""Write the models and images that all measurements share into a folder."""

import json
from pathlib import Path

import cv2
import msgspec
import numpy as np

from tests.benchmarks.serving.networks import WIDTHS, write_model
from tests.benchmarks.serving.shape import LABELS, SIDE, TOP_K

__all__ = ("IMAGE_SIZES", "Workload", "make_workload")

_ROOT = Path(__file__).parents[3]
_PHOTO = _ROOT / "fixtures" / "images" / "photo.jpg"

IMAGE_SIZES = {"vga": (640, 480), "hd": (1280, 720)}
"""Width and height in pixels."""


class Workload(msgspec.Struct, frozen=True):
    """Models and images for measurements.

    Attributes:
        folder: a model repository: `small` and `medium`, each with its settings.
        images: JPEG files by name.
        megaflops: millions of floating-point operations of each model for one image.
    """

    folder: Path
    images: dict[str, Path]
    megaflops: dict[str, float]

    def model(self, name: str) -> Path:
        """Return the path of a model's graph."""
        return self.folder / name / "model.onnx"


def make_workload(folder: Path) -> Workload:
    """Write models and images into an empty folder."""
    megaflops: dict[str, float] = {}
    for name, width in WIDTHS.items():
        model_folder = folder / "models" / name
        model_folder.mkdir(parents=True)
        megaflops[name] = write_model(model_folder / "model.onnx", width)
        settings = {
            "task_type": "IMAGE_CLASSIFICATION",
            "labels": LABELS,
            "preprocessing": {"size": [SIDE, SIDE], "resize": "letterbox", "fill": 0, "antialias": "fast"},
            "parameters": {"top_k": TOP_K},
        }
        (model_folder / "model-settings.json").write_text(json.dumps(settings))
    images = {name: _write_image(folder / f"{name}.jpg", *size) for name, size in IMAGE_SIZES.items()}
    return Workload(folder / "models", images, megaflops)


def _write_image(file: Path, width: int, height: int) -> Path:
    """Write the fixture photograph, mirrored to fill the size, with noise so that its JPEG has a typical size."""
    photo = cv2.imread(str(_PHOTO))
    wide = np.hstack([photo, photo[:, ::-1]])
    scale = max(width / wide.shape[1], height / wide.shape[0])
    resized = cv2.resize(wide, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)[:height, :width]
    noise = np.random.default_rng(0).normal(0, 7, resized.shape)
    cv2.imwrite(str(file), np.clip(resized + noise, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 82])
    return file
