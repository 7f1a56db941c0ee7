"""Convert the return value of a classifier."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from app.runtimes.python.answers.findings import Findings, read_records, read_supervision
from app.runtimes.python.answers.reading import Labels, described, fields, items, names, numbers, refused, scores
from tasks.image_classification import Classification

__all__ = ("read_classification",)

_FORMS = "Classification, a dict of scores by label, an array of scores by class number, or a list of label and score"


def read_classification(value: object, path: str, item: object, labels: Labels) -> Classification:
    """Read the scores of one image or text from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    del item
    if isinstance(value, Classification):
        findings = _parallel(value, path, labels)
        return Classification(labels=findings.labels, scores=findings.scores, class_ids=value.class_ids)
    if (found := fields(value, path, ("labels", "scores"))) is not None and items(found["labels"][0]) is not None:
        return _numbered(_parallel(value, path, labels), labels)
    if isinstance(value, Mapping):
        return _numbered(_by_label(cast("Mapping[object, object]", value), path, labels), labels)
    if (supervised := read_supervision(value, path, labels)) is not None:
        return _numbered(_check_counts(supervised, path), labels)
    if (listed := items(value)) is None:
        raise refused(path, _FORMS, described(value))
    has_numbers = hasattr(listed, "ndim") or not len(listed) or isinstance(listed[0], (int, float, np.generic))
    if not has_numbers and (records := read_records(listed, path, (), labels)) is not None:
        return _numbered(records[0], labels)
    return _by_number(listed, path, labels)


def _parallel(value: object, path: str, labels: Labels) -> Findings:
    found = fields(value, path, ("labels", "scores")) or {}
    (labelled, labels_at), (scored, scores_at) = found["labels"], found["scores"]
    named = names(labelled, labels_at, lambda index: f"{labels_at}[{index}]", labels)
    return _check_counts(Findings(named, scores(scored, scores_at, lambda index: f"{scores_at}[{index}]")), path)


def _by_label(value: Mapping[object, object], path: str, labels: Labels) -> Findings:
    keys = list(value)
    named = [labels.name(key, f"{path}: the key {key!r}") for key in keys]
    return Findings(named, scores(list(value.values()), path, lambda index: f"{path}[{keys[index]!r}]"))


def _by_number(value: object, path: str, labels: Labels) -> Classification:
    count = len(labels.known) or "C"
    found = scores(numbers(value, path, (count,)), path, lambda index: f"{path}[{index}]")
    return Classification(labels=[labels.name(index, path) for index in range(len(found))], scores=found)


def _check_counts(findings: Findings, path: str) -> Findings:
    if len(findings.labels) != len(findings.scores):
        raise refused(
            path, "equal numbers of scores and labels", f"{len(findings.scores)} scores, {len(findings.labels)} labels"
        )
    return findings


def _numbered(findings: Findings, labels: Labels) -> Classification:
    """Add class numbers if all labels belong to the model."""
    numbered = [labels.number(name) for name in findings.labels]
    known: Sequence[int] = [number for number in numbered if number is not None]
    class_ids = known if len(known) == len(numbered) and known else None
    return Classification(labels=findings.labels, scores=findings.scores, class_ids=class_ids)
