"""What tasks need for explanations: the predictions to explain, and how to find them again in a changed input."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.tensor import Labelled
from tasks.vision.filtering import SelectionParameters

_LOW_THRESHOLD = 0.1

PredictionT = TypeVar("PredictionT", bound=Labelled)
ParametersT = TypeVar("ParametersT", bound=SelectionParameters)


def take(predictions: PredictionT, indices: Sequence[int]) -> PredictionT:
    """Return the predictions with these indices, in their order, with all sequences and arrays that belong to them."""
    fields: dict[str, Any] = msgspec.structs.asdict(predictions)  # type: ignore[arg-type]
    taken: dict[str, Any] = {
        name: value[list(indices)] if isinstance(value, np.ndarray) else [value[index] for index in indices]
        for name, value in fields.items()
        if isinstance(value, np.ndarray | Sequence)
    }
    return msgspec.structs.replace(predictions, **taken)  # type: ignore[type-var]


def select_targets(predictions: PredictionT, label: str | None, max_objects: int) -> PredictionT:
    """Return the objects to explain, in order: of class `label` or all, up to `max_objects`."""
    selected = [index for index, own_label in enumerate(predictions.labels) if label in (None, own_label)]
    return take(predictions, selected[:max_objects])


def probe_parameters(parameters: ParametersT, targets: Labelled, *, low_threshold: bool = True) -> ParametersT:
    """Return parameters that select every prediction that may match a target.

    With `low_threshold`, the score threshold is a tenth of the lowest target's score. Lower scores do not matter, and
    without a threshold a detector returns thousands of objects.
    """
    threshold = _LOW_THRESHOLD * float(targets.scores.min()) if low_threshold else 0.0
    return msgspec.structs.replace(
        parameters,
        action=None,
        score_threshold=min(max(threshold, 0.0), 1.0),
        top_k=None,
        labels=tuple(dict.fromkeys(targets.labels)),
    )


def best_match(targets: Labelled, detected: Labelled, overlap: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (K,) the similarity of each target: the maximum of (K, M) IoU times score among objects of its class.

    D-RISE (Petsiuk et al. 2021, equation 3) also multiplies by the cosine of the class probabilities. Detectors here
    return one class and one score for each object, so that equality of the class replaces it.
    """
    same_class = np.array(targets.labels)[:, np.newaxis] == np.array(detected.labels, dtype=object)[np.newaxis]
    return np.max(np.where(same_class, overlap * detected.scores, 0), axis=1, initial=0).astype(np.float32)
