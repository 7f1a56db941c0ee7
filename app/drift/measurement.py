"""Measure images from any source."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from app.drift.embedding import Embedder
from app.drift.features import image_features, label_counts, prediction_features
from app.drift.sample import Observation
from tasks.task import TaskType
from tasks.vision.image import Image

__all__ = ("BEST_ONLY", "DriftInput", "measure_images")

BEST_ONLY = frozenset({TaskType.IMAGE_CLASSIFICATION, TaskType.TEXT_CLASSIFICATION})
"""Tasks whose answers contain every class, the best first."""

_UNSCORED = frozenset({"", TaskType.IMAGE_TEXT_TO_TEXT, TaskType.TEXT_GENERATION, TaskType.TENSOR})
_BATCH = 16


class DriftInput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One image to measure.

    Attributes:
        id: a unique id.
        image: its pixels, None if they are not available.
        records: the model's answer in the form of `Prediction.records`; None without an answer.
        metadata: values to slice by.
    """

    id: str
    image: Image | None
    records: Sequence[Mapping[str, object]] | None = None
    metadata: Mapping[str, str] = {}


def measure_images(inputs: Iterable[DriftInput], task_type: str, embedder: Embedder | None) -> Iterator[Observation]:
    """Measure images in order, in batches.

    Args:
        inputs: the images.
        task_type: the task of the model that answered, empty when none did.
        embedder: computes the embeddings, if any.

    Raises:
        InferenceError: when the embedder fails.
    """
    batch: list[DriftInput] = []
    for item in inputs:
        batch.append(item)
        if len(batch) == _BATCH:
            yield from _measure_batch(batch, task_type, embedder)
            batch.clear()
    if batch:
        yield from _measure_batch(batch, task_type, embedder)


def _measure_batch(batch: Sequence[DriftInput], task_type: str, embedder: Embedder | None) -> Iterator[Observation]:
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
