"""A picture cut into tiles, as Idefics3 and SmolVLM want it. Only here is transformers used, untyped."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from app.runtimes.onnxruntime.image_text_to_text.pixels import Tiles
from app.settings.model import ModelError
from tasks.vision.image import Image

__all__ = ("TiledPicture",)


class TiledPicture:
    """Cuts pictures up with Hugging Face's own image processor, which needs no torch but takes two seconds to import.

    Args:
        folder: where preprocessor_config.json lies.

    Raises:
        ModelError: when the processor cannot be made from it.
    """

    def __init__(self, folder: Path) -> None:
        transformers: Any = importlib.import_module("transformers")
        try:
            self._processor: Any = transformers.AutoImageProcessor.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, backend="pil"
            )
        except Exception as error:
            raise ModelError(f"{folder} has no image processor that can be used: {error}") from error

    def __call__(self, image: Image) -> Tiles:
        made: Any = self._processor(image.pixels, return_row_col_info=True, return_tensors="np")
        return Tiles(
            pixel_values=np.asarray(made["pixel_values"], np.float32),
            pixel_attention_mask=np.asarray(made["pixel_attention_mask"]) if "pixel_attention_mask" in made else None,
            rows=int(made["rows"][0][0]),
            columns=int(made["cols"][0][0]),
        )
