"""Read labelled objects from the three supported forms: parallel arrays, supervision's types, and records."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.reading import (
    Labels,
    column,
    columns,
    described,
    fields,
    finite,
    items,
    names,
    numbers,
    refused,
    scores,
)

__all__ = ("Findings", "check_lengths", "read_parallel", "read_records", "read_supervision", "table")


class Findings(msgspec.Struct, frozen=True, eq=False):
    """The labels and scores of N objects.

    Attributes:
        labels: N class names.
        scores: (N,) float32 in 0..1.
    """

    labels: list[str]
    scores: NDArray[np.float32]


def read_parallel(value: object, path: str, geometry: str, labels: Labels) -> tuple[Findings, tuple[Any, str]] | None:
    """Read parallel arrays from the keys or attributes `geometry`, scores and labels; return None for other forms.

    The prediction types of `tasks`, torchvision's dicts and MAITE's targets have this form.

    Returns:
        The labels and scores, and the geometry with its path.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    found = fields(value, path, (geometry, "scores", "labels"))
    if found is None:
        return None
    (labelled, labels_at), (scored, scores_at) = found["labels"], found["scores"]
    named = names(labelled, labels_at, lambda index: f"{labels_at}[{index}]", labels)
    if getattr(scored, "ndim", 1) == 2:
        scored = _label_scores(numbers(scored, scores_at, ("N", "C")), named, labels, scores_at)
    checked = scores(scored, scores_at, lambda index: f"{scores_at}[{index}]")
    return Findings(named, checked), found[geometry]


def read_supervision(value: object, path: str, labels: Labels) -> Findings | None:
    """Read the labels and scores of supervision's `Detections` or `Classifications`; return None for other types.

    Class names come from ``data["class_name"]`` if it exists, or else from the class numbers.

    Raises:
        InferenceError: MODEL_FAILED if scores or classes are missing.
    """
    found = None if isinstance(value, Mapping) else fields(value, path, ("confidence", "class_id"))
    if found is None:
        return None
    (confidence, confidence_at), (class_id, class_at) = found["confidence"], found["class_id"]
    data: object = getattr(cast("object", value), "data", None)
    class_names: object = cast("Mapping[str, object]", data).get("class_name") if isinstance(data, Mapping) else None
    if class_names is not None:
        class_id, class_at = class_names, f'{path}.data["class_name"]'
    named = names(class_id, class_at, lambda index: f"{class_at}[{index}]", labels)
    if confidence is None and not named:
        confidence = ()
    return Findings(named, scores(confidence, confidence_at, lambda index: f"{confidence_at}[{index}]"))


def read_records(
    value: object, path: str, wanted: Sequence[str], labels: Labels, label: str = "label"
) -> tuple[Findings, Mapping[str, Sequence[Any]]] | None:
    """Read a list of records: mappings or objects with label, score and the fields `wanted`. Return None for others.

    Args:
        value: the return value.
        path: its path in error messages.
        wanted: names of further fields.
        labels: the model's class names.
        label: name of the field with the class.

    Returns:
        The labels and scores, and the wanted fields as columns.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid record.
    """
    if not isinstance(value, (list, tuple)):
        return None
    read = columns(items(cast("object", value)) or (), path, (label, "score", *wanted))
    named = [labels.name(name, f"{path}[{index}].{label}") for index, name in enumerate(read[label])]
    scored = table(read, path, ("score",))[:, 0]
    return Findings(named, scores(scored, path, lambda index: f"{path}[{index}].score")), read


def table(read: Mapping[str, Sequence[Any]], path: str, wanted: Sequence[str]) -> NDArray[np.float32]:
    """Stack numeric fields of N records into an array of shape (N, len(wanted)).

    Args:
        read: the columns from `read_records`.
        path: path of the list of records in error messages.
        wanted: names of fields.

    Raises:
        InferenceError: MODEL_FAILED with the path of a field that is not a number.
    """
    return np.stack([column(read[name], lambda index, name=name: f"{path}[{index}].{name}") for name in wanted], axis=1)


def check_lengths(path: str, geometry: str, count: int, findings: Findings) -> None:
    """Check that the numbers of labels, scores and boxes, masks or contours are equal.

    Raises:
        InferenceError: MODEL_FAILED with the number of each.
    """
    counts = {geometry: count, "scores": len(findings.scores), "labels": len(findings.labels)}
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{found} {name}" for name, found in counts.items())
        raise refused(path, f"equal numbers of {geometry}, scores and labels", got)


def _label_scores(table: NDArray[np.float32], named: Sequence[str], labels: Labels, path: str) -> NDArray[np.float32]:
    """Select the score of each object's own class from (N, C) scores of all classes."""
    finite(table, lambda index: f"{path}[{index}]")
    if len(table) != len(named):
        raise refused(path, f"scores of {len(named)} objects", f"shape {table.shape}")
    numbers_of = [labels.number(name) if labels.known else int(name) for name in named]
    for index, number in enumerate(numbers_of):
        if number is None or number >= table.shape[1]:
            raise refused(f"{path}[{index}]", f"a score for the class {named[index]!r}", described(table[index]))
    return table[np.arange(len(table)), np.array(numbers_of, np.intp)]
