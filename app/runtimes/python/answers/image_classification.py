"""Convert the return value of a classifier."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from app.runtimes.python.answers.labelled_scores import LabelledScores, read_records, read_supervision
from app.runtimes.python.answers.value_parsing import (
    ClassNames,
    describe,
    fields,
    invalid_answer,
    items,
    names,
    numbers,
    scores,
)
from tasks.image_classification import Classification
from tasks.inference.error import quote_value

_FORMS = "Classification, a dict of scores by label, an array of scores by class number, or a list of label and score"


def read_classification(value: object, path: str, item: object, labels: ClassNames) -> Classification:
    """Read the scores of one image or text from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    del item
    if isinstance(value, Classification):
        labelled = _parallel(value, path, labels)
        return Classification(labels=labelled.labels, scores=labelled.scores, class_ids=value.class_ids)
    if (mapping := fields(value, path, ("labels", "scores"))) is not None and items(mapping["labels"][0]) is not None:
        return _numbered(_parallel(value, path, labels), labels)
    if isinstance(value, Mapping):
        return _numbered(_by_label(cast("Mapping[object, object]", value), path, labels), labels)
    if (labelled_supervision := read_supervision(value, path, labels)) is not None:
        labelled_supervision.check_lengths(path)
        return _numbered(labelled_supervision, labels)
    if (listed := items(value)) is None:
        raise invalid_answer(path, _FORMS, describe(value))
    if isinstance(listed, (list, tuple)) and len(listed) and not isinstance(listed[0], (int, float, np.generic)):
        return _numbered(read_records(cast("Sequence[object]", listed), path, labels)[0], labels)
    return _by_number(listed, path, labels)


def _parallel(value: object, path: str, labels: ClassNames) -> LabelledScores:
    mapping = fields(value, path, ("labels", "scores")) or {}
    (label_values, labels_path), (score_values, scores_path) = mapping["labels"], mapping["scores"]
    label_names = names(label_values, labels_path, labels)
    labelled = LabelledScores(label_names, scores(score_values, scores_path))
    labelled.check_lengths(path)
    return labelled


def _by_label(value: Mapping[object, object], path: str, labels: ClassNames) -> LabelledScores:
    keys = list(value)
    label_names = [labels.name(key, f"{path}: the key {quote_value(key)}") for key in keys]
    score_values = scores(list(value.values()), path, lambda index: f"{path}[{quote_value(keys[index])}]")
    return LabelledScores(label_names, score_values)


def _by_number(value: object, path: str, labels: ClassNames) -> Classification:
    count = len(labels.known) or "C"
    score_values = scores(numbers(value, path, (count,)), path)
    return Classification(labels=[labels.name(index, path) for index in range(len(score_values))], scores=score_values)


def _numbered(labelled: LabelledScores, labels: ClassNames) -> Classification:
    """Add class numbers if all labels belong to the model."""
    numbered = [labels.number(name) for name in labelled.labels]
    known: Sequence[int] = [number for number in numbered if number is not None]
    class_ids = known if len(known) == len(numbered) and known else None
    return Classification(labels=labelled.labels, scores=labelled.scores, class_ids=class_ids)
