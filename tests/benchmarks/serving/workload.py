"""Write the models and images that all measurements share into a folder."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from fixtures.scenes import DETECT, Scene, make_scene
from tests.benchmarks.serving.networks import WIDTHS, write_model
from tests.benchmarks.serving.shape import LABELS, SIDE, TOP_K

_FIXTURES = Path(__file__).parents[3] / "fixtures"
_PHOTO = _FIXTURES / "images" / "photo.jpg"
_SHAPES = replace(DETECT, counts=(4,))

IMAGE_SIZES = {"vga": (640, 480), "hd": (1280, 720)}
"""Width and height in pixels."""


class Workload(msgspec.Struct, frozen=True):
    """A model repository with `small` and `medium`, and images as JPEG by name.

    Scenes have the sizes of the images, and the shapes that the fixture models find. `megaflops` are the millions of
    floating-point operations of each model for one image.
    """

    folder: Path
    images: dict[str, Path]
    scenes: dict[str, Path]
    megaflops: dict[str, float]

    def model(self, name: str) -> Path:
        """Return the path of a model's graph, which is one of `folder` or of the fixtures."""
        return (self.folder if name in self.megaflops else _FIXTURES / "models") / name / "model.onnx"

    def image(self, model: str, size: str) -> Path:
        return (self.images if model in self.megaflops else self.scenes)[size]


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
            # The floor places and normalises in the same way. The filter is the default of classifiers.
            "preprocessing": {
                "size": [SIDE, SIDE], "resize": "letterbox", "fill": 0, "antialias": True, "mean": [0, 0, 0],
                "std": [1, 1, 1],
            },
            "parameters": {"top_k": TOP_K},
        }  # fmt: skip
        (model_folder / "model-settings.json").write_text(json.dumps(settings))
    photos = {name: _write_jpeg(folder / f"{name}.jpg", _photo(*size)) for name, size in IMAGE_SIZES.items()}
    scenes = {name: _write_jpeg(folder / "scenes" / f"{name}.jpg", _scene(*size)) for name, size in IMAGE_SIZES.items()}
    return Workload(folder / "models", photos, scenes, megaflops)


def encode_scene(scene: Scene) -> bytes:
    """Return a scene as JPEG."""
    pixels = cv2.cvtColor(scene.image, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()


def copy_model(model: Path, target: Path, changes: Mapping[str, Any]) -> Path:
    """Copy a model's folder with changed settings, and return the copy. Groups of settings are merged."""
    shutil.copytree(model, target)
    file = target / "model-settings.json"
    settings = json.loads(file.read_text()) if file.exists() else {}
    for name, value in changes.items():
        settings[name] = {**settings.get(name, {}), **value} if isinstance(value, Mapping) else value
    file.write_text(json.dumps(settings))
    return target


def _photo(width: int, height: int) -> NDArray[np.uint8]:
    """Return the fixture photograph as BGR, mirrored to fill the size."""
    photo = cv2.imread(str(_PHOTO))
    wide = np.hstack([photo, photo[:, ::-1]])
    scale = max(width / wide.shape[1], height / wide.shape[0])
    return cv2.resize(wide, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)[:height, :width]


def _scene(width: int, height: int) -> NDArray[np.uint8]:
    scene = make_scene(np.random.default_rng(0), _SHAPES, width, height)
    return cv2.cvtColor(scene.image, cv2.COLOR_RGB2BGR)


def _write_jpeg(file: Path, pixels: NDArray[np.uint8]) -> Path:
    """Write an image with noise, so that its JPEG has a typical size."""
    file.parent.mkdir(exist_ok=True)
    noise = np.random.default_rng(0).normal(0, 7, pixels.shape)
    cv2.imwrite(str(file), np.clip(pixels + noise, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 82])
    return file
