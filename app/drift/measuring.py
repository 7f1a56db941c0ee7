"""Observations of images, however they come."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from app.drift.embedding import Embedder
from app.drift.features import finding_features, image_features, label_counts
from app.drift.sample import Observation
from tasks.task import TaskType
from tasks.vision.image import Image

__all__ = ("BEST_ONLY", "Seen", "observed")

BEST_ONLY = frozenset({TaskType.IMAGE_CLASSIFICATION, TaskType.TEXT_CLASSIFICATION})
"""Tasks whose answers have every class in them, the best first."""

_UNSCORED = frozenset({"", TaskType.IMAGE_TEXT_TO_TEXT, TaskType.TEXT_GENERATION, TaskType.TENSOR})
_BATCH = 16


class Seen(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One image to be measured.

    Attributes:
        id: tells it from the others.
        image: its pixels, None when they are not at hand.
        records: what a model said of it, as `Prediction.records` has it; None when none did.
        metadata: what it may be sliced by.
    """

    id: str
    image: Image | None
    records: Sequence[Mapping[str, object]] | None = None
    metadata: Mapping[str, str] = {}


def observed(seen: Iterable[Seen], task_type: str, embedder: Embedder | None) -> Iterator[Observation]:
    """Measure images, in their order, a few at a time.

    Args:
        seen: the images.
        task_type: of the model that looked at them, empty when none did.
        embedder: makes the embeddings, if they are wanted.

    Raises:
        InferenceError: when the embedder fails.
    """
    batch: list[Seen] = []
    for each in seen:
        batch.append(each)
        if len(batch) == _BATCH:
            yield from _measured(batch, task_type, embedder)
            batch.clear()
    if batch:
        yield from _measured(batch, task_type, embedder)


def _measured(batch: Sequence[Seen], task_type: str, embedder: Embedder | None) -> Iterator[Observation]:
    images = [each.image for each in batch if each.image is not None]
    embeddings = iter(embedder(images) if embedder is not None and images else ())
    for each in batch:
        records = None if task_type in _UNSCORED else each.records
        if records is not None and task_type in BEST_ONLY:
            records = records[:1]
        yield Observation(
            id=each.id,
            image=None if each.image is None else image_features(each.image),
            embedding=None if each.image is None else next(embeddings, None),
            findings=None if records is None else finding_features(records),
            labels={} if records is None else label_counts(records),
            metadata=each.metadata,
        )
