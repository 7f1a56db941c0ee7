"""Images as they are compared: numbers, embeddings and labels, a row for each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.drift.features import FINDING_FEATURES, IMAGE_FEATURES

__all__ = ("LEAST_IMAGES", "OTHER_LABELS", "DriftError", "Observation", "Sample", "sample_of")

LEAST_IMAGES = 30
"""Fewer images than this say nothing."""


OTHER_LABELS = "(other labels)"

_MOST_LABELS = 5000
"""Of an open vocabulary labels are their senders', and every one is a column."""


class DriftError(Exception):
    """Drift cannot be measured, with a sentence for whoever asked."""


class Observation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is known of one image.

    Attributes:
        id: tells it from the others.
        image: (14,) `IMAGE_FEATURES`, None when its pixels were not at hand.
        embedding: (d,), None likewise.
        findings: (3,) `FINDING_FEATURES`, None when no model looked at it.
        labels: how often each was found.
        metadata: what it may be sliced by.
    """

    id: str
    image: NDArray[np.float64] | None = None
    embedding: NDArray[np.float32] | None = None
    findings: NDArray[np.float64] | None = None
    labels: Mapping[str, int] = {}
    metadata: Mapping[str, str] = {}

    @property
    def finite(self) -> bool:
        """Whether everything measured of it is a number."""
        parts = (self.image, self.embedding, self.findings)
        return all(bool(np.isfinite(each).all()) for each in parts if each is not None)


class Sample(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """N images, one row for each in everything.

    Attributes:
        ids: (N,) of the images.
        features: names of the columns of `numbers`.
        numbers: (N, len(features)).
        embeddings: (N, d); d is 0 when there are none.
        labels: names of the columns of `counts`.
        counts: (N, len(labels)) how often each label was found.
        metadata: (N,) what they may be sliced by.
        task_type: of the model that looked at them, empty when none did.
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
        """The rows whose metadata have `value` under `key`."""
        return np.array([row for row, each in enumerate(self.metadata) if each.get(key) == value], np.intp)

    def rows(self, rows: NDArray[np.intp]) -> "Sample":
        """Those rows of it."""
        return msgspec.structs.replace(
            self,
            ids=[self.ids[row] for row in rows],
            numbers=self.numbers[rows],
            embeddings=self.embeddings[rows],
            counts=self.counts[rows],
            metadata=[self.metadata[row] for row in rows],
        )


def sample_of(observations: Iterable[Observation], task_type: str = "", what: str = "the images") -> Sample:
    """One sample of single images, in their order. Of images with the same id the first counts.

    What only some have is left out: images without pixels, when others have theirs, and images that no model looked at.

    Args:
        observations: of single images.
        task_type: of the model that looked at them.
        what: the images are called in errors.

    Raises:
        DriftError: when fewer than `LEAST_IMAGES` are left, or one is measured with numbers that are not finite.
    """
    unique = list({each.id: each for each in reversed(list(observations))}.values())[::-1]
    pictured = [each for each in unique if each.image is not None]
    kept = pictured or unique
    judged = [each for each in kept if each.findings is not None]
    kept = judged or kept
    if len(kept) < LEAST_IMAGES:
        raise DriftError(f"Expected {LEAST_IMAGES} images at least to measure drift, got {len(kept)} in {what}")
    features = (*(IMAGE_FEATURES if pictured else ()), *(FINDING_FEATURES if judged else ()))
    if not features:
        raise DriftError(f"There is nothing to measure in {what}: neither pixels nor answers")
    empty = np.zeros(0)
    numbers = np.array(
        [np.concatenate([_or(each.image, empty), _or(each.findings if judged else None, empty)]) for each in kept]
    )
    labels, counts = _counted(kept)
    sample = Sample(
        ids=[each.id for each in kept],
        features=features,
        numbers=numbers,
        embeddings=_embeddings(kept, what),
        labels=labels,
        counts=counts,
        metadata=[each.metadata for each in kept],
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
    """The labels in their order, the rarest of too many as one, and how often each was found in each image."""
    totals = Counter[str]()
    for each in kept:
        totals.update(each.labels)
    labels = sorted(label for label, _ in totals.most_common(_MOST_LABELS))
    if len(totals) > _MOST_LABELS:
        labels.append(OTHER_LABELS)
    places = {label: place for place, label in enumerate(labels)}
    counts = np.zeros((len(kept), len(labels)), np.int64)
    for row, each in enumerate(kept):
        for label, count in each.labels.items():
            counts[row, places.get(label, len(labels) - 1)] += count
    return labels, counts


def _embeddings(kept: Sequence[Observation], what: str) -> NDArray[np.float32]:
    found = [each.embedding for each in kept if each.embedding is not None]
    if not found or len(found) < len(kept):
        return np.zeros((len(kept), 0), np.float32)
    lengths = sorted({len(each) for each in found})
    if len(lengths) > 1:
        raise DriftError(f"Expected embeddings of one length in {what}, got {', '.join(map(str, lengths))}")
    return np.array(found, np.float32)


def _or(values: NDArray[np.float64] | None, other: NDArray[np.float64]) -> NDArray[np.float64]:
    return other if values is None else values
