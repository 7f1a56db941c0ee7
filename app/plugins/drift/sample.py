"""Samples of measured images: numbers, embeddings and labels, one row for each image."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

MIN_IMAGES = 30
"""Minimum number of images for a meaningful comparison."""

IMAGE_FEATURES = (
    *("brightness", "contrast", "sharpness", "saturation"),
    *("red", "green", "blue", "red deviation", "green deviation", "blue deviation"),
    *("dark pixels", "bright pixels", "aspect", "size"),
)
"""Names of the values of `measurement.image_features`, in order."""

PREDICTION_FEATURES = ("findings", "best score", "mean score")
"""Names of the values of `measurement.prediction_features`, in order."""

OTHER_LABELS = "(other labels)"

_MAX_LABELS = 5000
"""Maximum number of label columns: with an open vocabulary, clients choose the labels."""


class DriftError(Exception):
    """Drift cannot be measured; the message gives the reason to the user."""


class Observation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The measurements of one image.

    `image` are (14,) `IMAGE_FEATURES`, None if its pixels were not available; `embedding` is (d,), also None without an
    embedder. `findings` are (3,) `PREDICTION_FEATURES`, None without an answer; `labels` count the predicted labels.
    """

    id: str
    image: NDArray[np.float64] | None = None
    embedding: NDArray[np.float32] | None = None
    findings: NDArray[np.float64] | None = None
    labels: Mapping[str, int] = {}
    metadata: Mapping[str, str] = {}

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The measured features of the image, and of the answer."""
        return np.concatenate([part for part in (self.image, self.findings) if part is not None] or [np.zeros(0)])

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.numbers).all() and (self.embedding is None or np.isfinite(self.embedding).all()))


class Sample(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """N images, with one row for each: ids, and the client's metadata.

    `numbers` are (N, len(features)), `embeddings` (N, d), where d is 0 without embeddings, and `counts`, the count of
    each label, (N, len(labels)). `task_type` is the task of the model that answered, empty when none did.
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

    def column(self, feature: str) -> NDArray[np.float64]:
        return self.numbers[:, list(self.features).index(feature)]

    def without_metadata(self, keys: Collection[str]) -> "Sample":
        metadata = [{key: value for key, value in entry.items() if key not in keys} for entry in self.metadata]
        return msgspec.structs.replace(self, metadata=metadata)


def build_sample(observations: Iterable[Observation], task_type: str = "", sample_name: str = "the images") -> Sample:
    """Combine observations into a sample, in order. For images with the same id, the first counts.

    If some images have pixels, images without are left out. If some have answers, images without are left out too.
    `task_type` is the task of the model that answered, `sample_name` the name of the images in errors. Raise DriftError
    when fewer than `MIN_IMAGES` are left, or a measurement is not finite.
    """
    unique = list({item.id: item for item in reversed(list(observations))}.values())[::-1]
    with_pixels = [item for item in unique if item.image is not None]
    with_predictions = [item for item in with_pixels or unique if item.findings is not None]
    selected = with_predictions or with_pixels or unique
    if len(selected) < MIN_IMAGES:
        got = f"got {len(selected)} in {sample_name}"
        raise DriftError(f"Expected {MIN_IMAGES} images at least to measure drift, {got}")
    features = (*(IMAGE_FEATURES if with_pixels else ()), *(PREDICTION_FEATURES if with_predictions else ()))
    if not features:
        raise DriftError(f"There is nothing to measure in {sample_name}: neither pixels nor answers")
    labels, counts = _count_labels(selected)
    sample = Sample(
        ids=[item.id for item in selected],
        features=features,
        numbers=np.array([item.numbers for item in selected]),
        embeddings=_stack_embeddings(selected, sample_name),
        labels=labels,
        counts=counts,
        metadata=[item.metadata for item in selected],
        task_type=task_type,
    )
    check_finite(sample, sample_name)
    return sample


def check_finite(sample: Sample, sample_name: str) -> None:
    """Reject measurements that are not finite with a `DriftError` that names the first such image."""
    for rows, name in ((sample.numbers, "numbers"), (sample.embeddings, "embedding")):
        invalid = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(invalid):
            which = f"{sample.ids[invalid[0]]!r} in {sample_name}"
            raise DriftError(f"The {name} of {which} are not finite ({len(invalid)} such images)")


def _count_labels(observations: Sequence[Observation]) -> tuple[Sequence[str], NDArray[np.int64]]:
    """Return the sorted labels and their counts in each image. The rarest of too many labels become one."""
    totals = Counter[str]()
    for item in observations:
        totals.update(item.labels)
    labels = sorted(label for label, _ in totals.most_common(_MAX_LABELS))
    if len(totals) > _MAX_LABELS:
        labels.append(OTHER_LABELS)
    columns = {label: column for column, label in enumerate(labels)}
    counts = np.zeros((len(observations), len(labels)), np.int64)
    for row, item in enumerate(observations):
        for label, count in item.labels.items():
            counts[row, columns.get(label, len(labels) - 1)] += count
    return labels, counts


def _stack_embeddings(observations: Sequence[Observation], sample_name: str) -> NDArray[np.float32]:
    embeddings = [item.embedding for item in observations if item.embedding is not None]
    if not embeddings or len(embeddings) < len(observations):
        return np.zeros((len(observations), 0), np.float32)
    lengths = sorted({len(embedding) for embedding in embeddings})
    if len(lengths) > 1:
        raise DriftError(f"Expected embeddings of one length in {sample_name}, got {', '.join(map(str, lengths))}")
    return np.array(embeddings, np.float32)
