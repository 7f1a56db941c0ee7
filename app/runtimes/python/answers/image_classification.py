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
        return _numbered(_check_counts(labelled_supervision, path), labels)
    if (listed := items(value)) is None:
        raise invalid_answer(path, _FORMS, describe(value))
    has_numbers = hasattr(listed, "ndim") or not len(listed) or isinstance(listed[0], (int, float, np.generic))
    if not has_numbers and (records := read_records(listed, path, (), labels)) is not None:
        return _numbered(records[0], labels)
    return _by_number(listed, path, labels)


def _parallel(value: object, path: str, labels: ClassNames) -> LabelledScores:
    mapping = fields(value, path, ("labels", "scores")) or {}
    (label_values, labels_path), (score_values, scores_path) = mapping["labels"], mapping["scores"]
    label_names = names(label_values, labels_path, labels)
    return _check_counts(LabelledScores(label_names, scores(score_values, scores_path)), path)


def _by_label(value: Mapping[object, object], path: str, labels: ClassNames) -> LabelledScores:
    keys = list(value)
    label_names = [labels.name(key, f"{path}: the key {key!r}") for key in keys]
    return LabelledScores(label_names, scores(list(value.values()), path, lambda index: f"{path}[{keys[index]!r}]"))


def _by_number(value: object, path: str, labels: ClassNames) -> Classification:
    count = len(labels.known) or "C"
    score_values = scores(numbers(value, path, (count,)), path)
    return Classification(labels=[labels.name(index, path) for index in range(len(score_values))], scores=score_values)


def _check_counts(labelled: LabelledScores, path: str) -> LabelledScores:
    if len(labelled.labels) != len(labelled.scores):
        raise invalid_answer(
            path, "equal numbers of scores and labels", f"{len(labelled.scores)} scores, {len(labelled.labels)} labels"
        )
    return labelled


def _numbered(labelled: LabelledScores, labels: ClassNames) -> Classification:
    """Add class numbers if all labels belong to the model."""
    numbered = [labels.number(name) for name in labelled.labels]
    known: Sequence[int] = [number for number in numbered if number is not None]
    class_ids = known if len(known) == len(numbered) and known else None
    return Classification(labels=labelled.labels, scores=labelled.scores, class_ids=class_ids)
