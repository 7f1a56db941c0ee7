"""Send requests to servables, and run transformers itself on the same images."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from tasks.inference.tensor import BytesTensor, InputTensor
from tasks.vision.contours import mask_of_contours
from tests.support.data.images import encode_image
from tests.support.data.requests import file_input, predict
from tests.support.models import tiny_models

FolderOf = Callable[[str], Path]
"""The type of the fixture `folder_of`."""
Served = Callable[..., Servable]
"""The type of the fixture `served`."""


def scene(width: int = 96, height: int = 64, seed: int = 0) -> NDArray[np.uint8]:
    """Return an image of coloured shapes on noise."""
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 80, (height, width, 3), np.uint8)
    cv2.rectangle(pixels, (width // 8, height // 6), (width // 2, height // 2), (220, 30, 40), -1)
    cv2.circle(pixels, (width * 3 // 4, height * 2 // 3), min(width, height) // 5, (20, 200, 250), -1)
    return pixels


def image_input(*images: NDArray[np.uint8], **parameters: Any) -> BytesTensor:
    return file_input(*map(encode_image, images), **parameters)


def answers(servable: Servable, *inputs: InputTensor) -> list[list[Any]]:
    """Return the records of every item of every input."""
    return [list(prediction.records()) for prediction in predict(servable, *inputs)]


def with_template(model: Path, folder: Path, template: str) -> ModelSource:
    """Copy a model to a folder with another chat template, and return its source."""
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(template)
    return ModelSource(name=folder.name, version="1", folder=folder)


def boxes_of(records: Sequence[Any]) -> NDArray[np.float64]:
    """Return the boxes of records, (N, 4): left, top, right and bottom."""
    return np.array([(record.xmin, record.ymin, record.xmax, record.ymax) for record in records])


def mask_of(record: Any, width: int, height: int) -> NDArray[np.uint8]:
    """Return the pixels inside the contours of a record as 1."""
    contours = [np.array([(point.x, point.y) for point in contour], np.float32) for contour in record.contour]
    return mask_of_contours(contours, width, height)


pil_image = PIL.Image.fromarray


def model_and_processor(folder: Path, auto: str) -> tuple[Any, Any]:
    """Return the model as transformers loads it, and its image processor."""
    t = tiny_models.transformers()
    model = getattr(t, auto).from_pretrained(folder, local_files_only=True).eval()
    return model, t.AutoImageProcessor.from_pretrained(folder, local_files_only=True, backend="pil")


def forward(model: Any, inputs: Any) -> Any:
    with tiny_models.torch().no_grad():
        return model(**inputs)
