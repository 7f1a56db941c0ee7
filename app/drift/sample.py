"""Samples of measured images: numbers, embeddings and labels, one row for each image."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.drift.features import FINDING_FEATURES, IMAGE_FEATURES

__all__ = ("LEAST_IMAGES", "OTHER_LABELS", "DriftError", "Observation", "Sample", "sample_of")

LEAST_IMAGES = 30
"""Minimum number of images for a meaningful comparison."""


OTHER_LABELS = "(other labels)"

_MAX_LABELS = 5000
"""Maximum number of label columns: with an open vocabulary, clients choose the labels."""


class DriftError(Exception):
    """Drift cannot be measured; the message gives the reason to the user."""


class Observation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The measurements of one image.

    Attributes:
        id: a unique id.
        image: (14,) `IMAGE_FEATURES`, None if its pixels were not available.
        embedding: (d,), None without pixels or embedder.
        findings: (3,) `FINDING_FEATURES`, None without an answer.
        labels: the count of each predicted label.
        metadata: values to slice by.
    """

    id: str
    image: NDArray[np.float64] | None = None
    embedding: NDArray[np.float32] | None = None
    findings: NDArray[np.float64] | None = None
    labels: Mapping[str, int] = {}
    metadata: Mapping[str, str] = {}

    @property
    def finite(self) -> bool:
        """Whether all measurements are finite numbers."""
        parts = (self.image, self.embedding, self.findings)
        return all(bool(np.isfinite(part).all()) for part in parts if part is not None)


class Sample(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """N images, with one row for each.

    Attributes:
        ids: (N,) ids of the images.
        features: names of the columns of `numbers`.
        numbers: (N, len(features)).
        embeddings: (N, d); d is 0 without embeddings.
        labels: names of the columns of `counts`.
        counts: (N, len(labels)) the count of each label.
        metadata: (N,) values to slice by.
        task_type: the task of the model that answered, empty when none did.
    """

    ids: Sequence[str]
    features: Sequence[str]
    numbers: NDArray[np.float64]
    embeddings: NDArray[np.float32]
    labels: Sequence[str] = ()
    counts: NDArray[np.int64]
    metadata: Sequence[Mapping[str, str]]
    task_type: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, key: str, value: str) -> NDArray[np.intp]:
        """Return the rows whose metadata has `value` for `key`."""
        return np.array([row for row, entry in enumerate(self.metadata) if entry.get(key) == value], np.intp)

    def rows(self, rows: NDArray[np.intp]) -> "Sample":
        """Return a sample of these rows."""
        return msgspec.structs.replace(
            self,
            ids=[self.ids[row] for row in rows],
            numbers=self.numbers[rows],
            embeddings=self.embeddings[rows],
            counts=self.counts[rows],
            metadata=[self.metadata[row] for row in rows],
        )


def sample_of(observations: Iterable[Observation], task_type: str = "", what: str = "the images") -> Sample:
    """Combine observations into a sample, in order. For images with the same id, the first counts.

    If some images have pixels, images without are left out. If some have answers, images without are left out too.

    Args:
        observations: the measurements of single images.
        task_type: the task of the model that answered.
        what: the name of the images in errors.

    Raises:
        DriftError: when fewer than `LEAST_IMAGES` are left, or a measurement is not finite.
    """
    unique = list({item.id: item for item in reversed(list(observations))}.values())[::-1]
    with_pixels = [item for item in unique if item.image is not None]
    kept = with_pixels or unique
    answered = [item for item in kept if item.findings is not None]
    kept = answered or kept
    if len(kept) < LEAST_IMAGES:
        raise DriftError(f"Expected {LEAST_IMAGES} images at least to measure drift, got {len(kept)} in {what}")
    features = (*(IMAGE_FEATURES if with_pixels else ()), *(FINDING_FEATURES if answered else ()))
    if not features:
        raise DriftError(f"There is nothing to measure in {what}: neither pixels nor answers")
    empty = np.zeros(0)
    numbers = np.array(
        [np.concatenate([_or(item.image, empty), _or(item.findings if answered else None, empty)]) for item in kept]
    )
    labels, counts = _counted(kept)
    sample = Sample(
        ids=[item.id for item in kept],
        features=features,
        numbers=numbers,
        embeddings=_embeddings(kept, what),
        labels=labels,
        counts=counts,
        metadata=[item.metadata for item in kept],
        task_type=task_type,
    )
    check_finite(sample, what)
    return sample


def check_finite(sample: Sample, what: str) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        DriftError: naming the first image that has some.
    """
    for rows, name in ((sample.numbers, "numbers"), (sample.embeddings, "embedding")):
        wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(wrong):
            raise DriftError(
                f"The {name} of {sample.ids[wrong[0]]!r} in {what} are not finite ({len(wrong)} such images)"
            )


def _counted(kept: Sequence[Observation]) -> tuple[Sequence[str], NDArray[np.int64]]:
    """Return the sorted labels and their counts in each image. The rarest of too many labels become one."""
    totals = Counter[str]()
    for item in kept:
        totals.update(item.labels)
    labels = sorted(label for label, _ in totals.most_common(_MAX_LABELS))
    if len(totals) > _MAX_LABELS:
        labels.append(OTHER_LABELS)
    places = {label: place for place, label in enumerate(labels)}
    counts = np.zeros((len(kept), len(labels)), np.int64)
    for row, item in enumerate(kept):
        for label, count in item.labels.items():
            counts[row, places.get(label, len(labels) - 1)] += count
    return labels, counts


def _embeddings(kept: Sequence[Observation], what: str) -> NDArray[np.float32]:
    found = [item.embedding for item in kept if item.embedding is not None]
    if not found or len(found) < len(kept):
        return np.zeros((len(kept), 0), np.float32)
    lengths = sorted({len(embedding) for embedding in found})
    if len(lengths) > 1:
        raise DriftError(f"Expected embeddings of one length in {what}, got {', '.join(map(str, lengths))}")
    return np.array(found, np.float32)


def _or(values: NDArray[np.float64] | None, other: NDArray[np.float64]) -> NDArray[np.float64]:
    return other if values is None else values
