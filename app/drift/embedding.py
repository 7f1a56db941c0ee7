"""Embeddings of images, by a small graph that comes along or by any other."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.drift.sample import DriftError
from tasks.exchange.tensor import Datatype, TensorSpec
from tasks.vision.image import Image

__all__ = ("BUNDLED", "Embedder")

BUNDLED = Path(__file__).with_name("embedder.onnx")
"""Convolutions drawn at random; `fixtures/drift_embedder.py` writes it."""

_ANY_SIDE = 224
_NAMES = ("embed", "feature", "pool")

Run = Callable[[NDArray[np.float32]], NDArray[Any]]


class Embedder:
    """Makes one row of numbers of each image.

    An image is made as large as the graph's input, whatever its aspect, RGB and 0..1: what else a graph wants of its
    pixels belongs into the graph. An output of several dimensions gives the mean of each of its channels.

    Args:
        file: the graph, whose digest is kept in baselines.
        inputs: of the graph.
        outputs: of the graph.
        run: gives the output of that name for the graph's input.

    Attributes:
        name: the file's name.
        digest: SHA-256 of the file, in hexadecimal.

    Raises:
        DriftError: when the graph does not take images.
    """

    def __init__(
        self,
        file: Path,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        run: Callable[[str, str, NDArray[np.float32]], NDArray[Any]],
    ) -> None:
        if len(inputs) != 1 or inputs[0].datatype is not Datatype.FP32 or len(inputs[0].shape) != 4:
            raise DriftError(f"{file}: Expected one input of FP32 [n, 3, height, width] to make embeddings with")
        _, channels, height, width = inputs[0].shape
        if channels != 3:
            raise DriftError(f"{file}: Expected an input of 3 channels to make embeddings with, got {channels}")
        self.name = file.name
        self.digest = hashlib.sha256(file.read_bytes()).hexdigest()
        self._size = tuple(side if side > 0 else _ANY_SIDE for side in (width, height))
        self._single = inputs[0].shape[0] == 1
        output = _chosen(outputs)
        self._run: Run = lambda batch: run(inputs[0].name, output.name, batch)

    def __call__(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """(len(images), d)."""
        batch = np.stack([self._prepared(each) for each in images])
        made = np.concatenate([self._run(each[None]) for each in batch]) if self._single else self._run(batch)
        while made.ndim > 2:
            made = made.mean(axis=-1)
        return made.astype(np.float32).reshape(len(images), -1)

    def _prepared(self, image: Image) -> NDArray[np.float32]:
        size = self._size
        smaller = image.width > size[0] and image.height > size[1]
        resized = cv2.resize(image.pixels, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)
        return np.ascontiguousarray(resized.transpose(2, 0, 1), np.float32) / np.float32(255)


def _chosen(outputs: Sequence[TensorSpec]) -> TensorSpec:
    """The output that is called an embedding; else the first of few dimensions, else the first."""
    for name in _NAMES:
        for each in outputs:
            if name in each.name.lower():
                return each
    return min(outputs, key=lambda each: len(each.shape) != 2)
