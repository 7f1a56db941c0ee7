"""Map the labels of a model to the labels of a dataset."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from app.evaluation.answers import EvaluatedItem
from app.evaluation.datasets.files import read_json
from app.evaluation.extras import EvaluationError

LabelMap = Mapping[str, str | None]
"""The dataset's label by the model's label; None drops a class of the model."""


def read_label_map(path: Path, labels: Sequence[str]) -> LabelMap:
    """Read a JSON object from the model's labels to the dataset's labels or null.

    Raises:
        EvaluationError: when the file has another form, or an unknown label of the dataset.
    """
    try:
        label_map = msgspec.convert(read_json(path), dict[str, str | None])
    except msgspec.ValidationError as error:
        raise EvaluationError(f"{path}: Expected the dataset's label, or null, by the model's: {error}") from None
    unknown = sorted({label for label in label_map.values() if label is not None} - set(labels))
    if unknown:
        raise EvaluationError(f"{path}: {unknown[0]!r} is not a label of the dataset; it has {_shorten(labels)}")
    return label_map


def map_labels(result: EvaluatedItem, label_map: LabelMap) -> EvaluatedItem:
    """Return `result` with the dataset's labels. Unmapped labels stay; labels mapped to None are dropped."""
    predictions = tuple(
        prediction
        if (label := label_map.get(prediction.label, prediction.label)) == prediction.label
        else msgspec.structs.replace(prediction, label=label)
        for prediction in result.predictions
        if label_map.get(prediction.label, prediction.label) is not None
    )
    return msgspec.structs.replace(result, predictions=predictions)


def unknown_labels(results: Iterable[EvaluatedItem], labels: Sequence[str]) -> Mapping[str, int]:
    """Count the predicted labels that the dataset does not have, the most frequent first."""
    known = frozenset(labels)
    counts = Counter(
        prediction.label for result in results for prediction in result.predictions if prediction.label not in known
    )
    return dict(counts.most_common())


def _shorten(labels: Sequence[str]) -> str:
    return ", ".join(labels[:20]) + (" ..." if len(labels) > 20 else "")
