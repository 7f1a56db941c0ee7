"""Helpers for tasks to detect the same objects again in a masked image."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

__all__ = ("ImageItem", "best_match", "probe_item", "probe_parameters", "select_targets")

_LOW_THRESHOLD = 0.1


class ImageItem(Protocol):
    """The input of a vision model: one image and its parameters."""

    @property
    def image(self) -> Image: ...

    @property
    def parameters(self) -> SelectionParameters: ...


class LabelledPredictions(Protocol):
    """The predictions for one image."""

    @property
    def labels(self) -> Sequence[str]: ...

    @property
    def scores(self) -> NDArray[np.float32]: ...


ItemT = TypeVar("ItemT", bound=ImageItem)
ParametersT = TypeVar("ParametersT", bound=SelectionParameters)


def select_targets(predictions: LabelledPredictions, label: str | None, max_objects: int) -> list[int]:
    """Return the indices of the objects to explain, in order: those of class `label` or all, up to `max_objects`."""
    return [index for index, object_label in enumerate(predictions.labels) if label in (None, object_label)][
        :max_objects
    ]


def probe_item(item: ItemT, image: Image, targets: LabelledPredictions, *, low_threshold: bool) -> ItemT:
    """Return `item` with another image, and parameters that select every prediction that may match a target.

    Args:
        item: the original input of the model.
        image: a masked copy of its image.
        targets: the predictions to detect again.
        low_threshold: as for `probe_parameters`.
    """
    parameters: Any = probe_parameters(item.parameters, targets, low_threshold=low_threshold)
    return msgspec.structs.replace(item, image=image, parameters=parameters)  # pyright: ignore


def probe_parameters(parameters: ParametersT, targets: LabelledPredictions, *, low_threshold: bool) -> ParametersT:
    """Return parameters that select every prediction that may match a target.

    Args:
        parameters: the original parameters.
        targets: the predictions to detect again.
        low_threshold: whether to use a score threshold of a tenth of the lowest target's score. Lower scores do not
            matter, and without a threshold a detector returns thousands of objects.
    """
    threshold = _LOW_THRESHOLD * float(targets.scores.min()) if low_threshold else 0.0
    return msgspec.structs.replace(
        parameters,
        action=None,
        score_threshold=min(max(threshold, 0.0), 1.0),
        top_k=None,
        labels=tuple(dict.fromkeys(targets.labels)),
    )


def best_match(
    targets: LabelledPredictions, detected: LabelledPredictions, overlap: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return (K,) the similarity of each target: the maximum of overlap times score among objects of its class.

    D-RISE (Petsiuk et al. 2021, equation 3) also multiplies by the cosine of the class probabilities. Detectors here
    return one class and one score for each object, so that equality of the class replaces it.

    Args:
        targets: K objects.
        detected: M objects in the masked image.
        overlap: (K, M) intersection over union of each pair.
    """
    same_class = np.array(targets.labels)[:, np.newaxis] == np.array(detected.labels, dtype=object)[np.newaxis]
    return np.max(np.where(same_class, overlap * detected.scores, 0), axis=1, initial=0).astype(np.float32)
