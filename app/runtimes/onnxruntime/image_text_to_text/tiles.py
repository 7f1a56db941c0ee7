"""Cut an image into tiles for Idefics3 and SmolVLM. Only this module of the package uses transformers, untyped."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from app.runtimes.onnxruntime.image_text_to_text.pixels import Tiles
from app.settings.model import ModelError
from tasks.vision.image import Image

__all__ = ("TiledImageProcessor",)


class TiledImageProcessor:
    """Cuts images into tiles with Hugging Face's image processor, which needs no torch but two seconds to import.

    Args:
        folder: the folder of preprocessor_config.json.

    Raises:
        ModelError: if the processor cannot be loaded.
    """

    def __init__(self, folder: Path) -> None:
        transformers: Any = importlib.import_module("transformers")
        try:
            self._processor: Any = transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, backend="pil"
            )
        except Exception as error:
            raise ModelError(f"{folder} has no usable image processor: {error}") from error

    def __call__(self, image: Image) -> Tiles:
        processed: Any = self._processor(image.pixels, return_row_col_info=True, return_tensors="np")
        return Tiles(
            pixel_values=np.asarray(processed["pixel_values"], np.float32),
            pixel_attention_mask=np.asarray(processed["pixel_attention_mask"])
            if "pixel_attention_mask" in processed
            else None,
            rows=int(processed["rows"][0][0]),
            columns=int(processed["cols"][0][0]),
        )
