"""Measure images from any source: their features, embeddings and metadata, and features of predictions on them."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.drift.sample import DriftError, Observation
from metadata.request import MetadataEntry
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import BEST_ONLY, TaskType
from tasks.vision.image import Image

if TYPE_CHECKING:
    from app.core.runtimes.onnxruntime.session import GraphSession

BUNDLED = Path(__file__).with_name("embedder.onnx")
"""A graph of random convolutions, written by `fixtures/drift_embedder.py`."""

_DEFAULT_SIDE = 224
_NAMES = ("embed", "feature", "pool")

Embed = Callable[[Sequence[Image]], NDArray[np.float32]]
"""Returns one embedding for each image, (len(images), d)."""

_UNSCORED = frozenset({"", *(task_type for task_type in TaskType if task_type.returns in ("texts", "tensors"))})
_BATCH = 16
_MAX_TEXT = 200


_THUMBNAIL = 128
_WINDOW = 512
_DARK, _BRIGHT = 16, 239


class Embedder:
    """Compute one embedding for each image.

    An image is resized to the graph's input without keeping its aspect ratio, as RGB in 0..1. The graph must do any
    other normalization. An output with several dimensions is averaged for each channel. Baselines store the name of the
    file, and its SHA-256 as `digest`. Raise DriftError when the graph does not take images.
    """

    def __init__(self, session: "GraphSession") -> None:
        file, inputs = session.file, session.inputs
        if len(inputs) != 1 or inputs[0].datatype is not Datatype.FP32 or len(inputs[0].shape) != 4:
            raise DriftError(f"{file}: Expected one input of FP32 [n, 3, height, width] to make embeddings with")
        _, channels, height, width = inputs[0].shape
        if channels != 3:
            raise DriftError(f"{file}: Expected an input of 3 channels to make embeddings with, got {channels}")
        self.name = file.name
        self.digest = hashlib.sha256(file.read_bytes()).hexdigest()
        self._size = tuple(side if side > 0 else _DEFAULT_SIDE for side in (width, height))
        self._single = inputs[0].shape[0] == 1
        self._session, self._input, self._output = session, inputs[0].name, embedding_output(session.outputs).name

    def __call__(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return embeddings of shape (len(images), d)."""
        batch = np.stack([self._prepare(image) for image in images])
        calls = batch[:, np.newaxis] if self._single else [batch]
        return as_vectors(np.concatenate([self._session.run({self._input: feed}, [self._output])[0] for feed in calls]))

    def _prepare(self, image: Image) -> NDArray[np.float32]:
        size = self._size
        smaller = image.width > size[0] and image.height > size[1]
        resized = cv2.resize(image.pixels, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)
        return np.ascontiguousarray(resized.transpose(2, 0, 1), np.float32) / np.float32(255)


def embedding_output(outputs: Sequence[TensorSpec]) -> TensorSpec:
    """Return the output named like an embedding, else the first with two dimensions, else the first."""
    named = (output for name in _NAMES for output in outputs if name in output.name.lower())
    return next(named, min(outputs, key=lambda output: len(output.shape) != 2))


def as_vectors(embeddings: NDArray[Any]) -> NDArray[np.float32]:
    """Return (n, d) embeddings; further dimensions are averaged for each channel."""
    while embeddings.ndim > 2:
        embeddings = embeddings.mean(axis=-1)
    return embeddings.astype(np.float32).reshape(len(embeddings), -1)


class DriftInput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One image to measure.

    `image` is None if its pixels are not kept. `records` are the model's answer, as in `Prediction.records`.
    """

    id: str
    image: Image | None
    records: Sequence[Mapping[str, object]] | None = None
    metadata: Mapping[str, str] = {}


def measure_images(inputs: Iterable[DriftInput], task_type: str, embedder: Embed | None) -> Iterator[Observation]:
    """Measure images in order, in batches. `task_type` is the task of the model that answered, empty when none did."""
    remaining = iter(inputs)
    while batch := list(islice(remaining, _BATCH)):
        images = [item.image for item in batch if item.image is not None]
        embeddings = iter(embedder(images) if embedder is not None and images else ())
        for item in batch:
            records = None if task_type in _UNSCORED else item.records
            if records is not None and task_type in BEST_ONLY:
                records = records[:1]
            yield Observation(
                id=item.id,
                image=None if item.image is None else image_features(item.image),
                embedding=None if item.image is None else next(embeddings, None),
                findings=None if records is None else prediction_features(records),
                labels={} if records is None else label_counts(records),
                metadata=item.metadata,
            )


def image_features(image: Image) -> NDArray[np.float64]:
    """Return the `IMAGE_FEATURES` of an image, of shape (14,).

    Brightness, contrast and colours use values 0..255. Saturation and the shares of dark and bright pixels are 0..1.
    Sharpness is log(1 + variance of the Laplacian). Aspect is log2(width / height), and size is log2 of the pixel
    count. Colours come from a thumbnail. Sharpness comes from the centre at full size, because thumbnails are always
    sharp.
    """
    scale = min(1, _THUMBNAIL / max(image.height, image.width))
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    resized: Any = image.pixels if scale == 1 else cv2.resize(image.pixels, size, interpolation=cv2.INTER_AREA)
    small: NDArray[np.uint8] = resized
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    colours: Any = cv2.meanStdDev(small)
    light: Any = cv2.meanStdDev(grey)
    largest, smallest = small.max(axis=2), small.min(axis=2)
    saturation = (largest - smallest) / np.maximum(largest, 1).astype(np.float32)
    return np.array(
        [
            *(float(statistic[0, 0]) for statistic in light),
            _sharpness(image.pixels),
            float(saturation.mean()),
            *(float(value) for statistic in colours for value in statistic[:, 0]),
            float(np.mean(grey < _DARK)),
            float(np.mean(grey > _BRIGHT)),
            np.log2(image.width / image.height),
            np.log2(image.width * image.height),
        ],
        np.float64,
    )


def prediction_features(records: Sequence[Mapping[str, object]]) -> NDArray[np.float64]:
    """Return the `PREDICTION_FEATURES` of an answer, of shape (3,); scores are 0 without predictions."""
    values = (record.get("score") for record in records)
    scores = [float(value) for value in values if isinstance(value, int | float)]
    return np.array([len(records), max(scores, default=0.0), float(np.mean(scores)) if scores else 0.0], np.float64)


def label_counts(records: Sequence[Mapping[str, object]]) -> dict[str, int]:
    """Count each label of an answer."""
    labels = [record.get("label") for record in records]
    return dict(Counter(label for label in labels if isinstance(label, str)))


def metadata_texts(entries: Iterable[MetadataEntry]) -> Mapping[str, str]:
    """Return the values of a client's metadata as texts, cut to bound the memory of a window."""
    return {entry.key: str(entry.value)[:_MAX_TEXT] for entry in entries}


def _sharpness(pixels: NDArray[np.uint8]) -> float:
    height, width = pixels.shape[:2]
    top, left = max(0, height - _WINDOW) // 2, max(0, width - _WINDOW) // 2
    window = np.ascontiguousarray(pixels[top : top + _WINDOW, left : left + _WINDOW])
    laplacian = cv2.Laplacian(cv2.cvtColor(window, cv2.COLOR_RGB2GRAY), cv2.CV_32F)
    return float(np.log1p(laplacian.var()))
