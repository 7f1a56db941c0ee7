"""Compute image features with the vision encoder graph."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.onnxruntime.image_text_to_text.pixels import Tiles
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelError
from tasks.inference.error import ErrorKind, InferenceError

_PIXELS = "pixel_values"
_MASK = "pixel_attention_mask"


class VisionEncoder:
    """Runs the vision encoder, which takes ``pixel_values`` and, with tiles, may take ``pixel_attention_mask``.

    Args:
        graph: the encoder.
        tiled: whether the input has an axis for tiles.

    Raises:
        ModelError: if the graph has other inputs.
    """

    def __init__(self, graph: Session, *, tiled: bool) -> None:
        self._graph = graph
        self._inputs = {spec.name: spec for spec in graph.inputs}
        if _PIXELS not in self._inputs:
            raise ModelError(f"{graph.file} takes no {_PIXELS}")
        known = {_PIXELS, _MASK} if tiled else {_PIXELS}
        for name in self._inputs.keys() - known:
            raise ModelError(f"{graph.file} takes {name!r}, which is not supported yet")
        self._rank = 5 if tiled else 4
        shape = self._inputs[_PIXELS].shape
        if len(shape) != self._rank:
            raise ModelError(f"{graph.file}: expected {_PIXELS} with {self._rank} dimensions, got {list(shape)}")
        names = [spec.name for spec in graph.outputs]
        self._output = names.index("image_features") if "image_features" in names else 0

    @property
    def width(self) -> int:
        """Return the length of a feature; -1 if the graph does not declare it."""
        shape = self._graph.outputs[self._output].shape
        return shape[-1] if shape else -1

    def check_size(self, height: int, width: int) -> None:
        """Check that the graph accepts inputs of this size, in pixels.

        Raises:
            ModelError: if it does not.
        """
        declared = self._inputs[_PIXELS].shape[-3:]
        if any(
            declared_side not in (-1, side) for declared_side, side in zip(declared, (3, height, width), strict=True)
        ):
            preprocessed = [3, height, width]
            raise ModelError(
                f"{self._graph.file} takes images of {list(declared)}, but preprocessing makes {preprocessed}"
            )

    def __call__(self, tiles: Tiles) -> NDArray[Any]:
        """Return the features (number, width) of an image, tile by tile.

        Raises:
            InferenceError: MODEL_FAILED.
        """
        feeds: dict[str, NDArray[Any]] = {_PIXELS: tiles.pixel_values}
        if _MASK in self._inputs:
            # Every pixel of a tile belongs to the image.
            feeds[_MASK] = np.ones(tiles.pixel_values.shape[:2] + tiles.pixel_values.shape[3:], np.bool_)
        cast = {name: value.astype(self._inputs[name].datatype.dtype, copy=False) for name, value in feeds.items()}
        features = self._graph.run(cast)[self._output]
        if features.ndim < 2 or features.size == 0:
            message = f"The model failed: expected image features of shape [number, width], got {list(features.shape)}"
            raise InferenceError(ErrorKind.MODEL_FAILED, message)
        return features.reshape(-1, features.shape[-1])
