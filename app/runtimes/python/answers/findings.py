"""The three forms that answers of several labelled findings come in: parallel arrays, supervision's, and records."""

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
    """What N findings are called and how sure they are.

    Attributes:
        labels: N class names.
        scores: (N,) float32, 0..1.
    """

    labels: list[str]
    scores: NDArray[np.float32]


def read_parallel(value: object, path: str, geometry: str, labels: Labels) -> tuple[Findings, tuple[Any, str]] | None:
    """Arrays side by side, as keys or attributes `geometry`, scores and labels; None when it is no such thing.

    The prediction types of `tasks`, torchvision's dicts and MAITE's targets are all of this form.

    Returns:
        The findings, and the geometry with its path.

    Raises:
        InferenceError: MODEL_FAILED naming what cannot be used.
    """
    found = fields(value, path, (geometry, "scores", "labels"))
    if found is None:
        return None
    (labelled, labels_at), (scored, scores_at) = found["labels"], found["scores"]
    named = names(labelled, labels_at, lambda index: f"{labels_at}[{index}]", labels)
    if getattr(scored, "ndim", 1) == 2:
        scored = _of_labels(numbers(scored, scores_at, ("N", "C")), named, labels, scores_at)
    checked = scores(scored, scores_at, lambda index: f"{scores_at}[{index}]")
    return Findings(named, checked), found[geometry]


def read_supervision(value: object, path: str, labels: Labels) -> Findings | None:
    """The names and scores of supervision's `Detections` or `Classifications`; None when it is no such thing.

    Names come from ``data["class_name"]`` where that is, else from the class numbers.

    Raises:
        InferenceError: MODEL_FAILED when it has no scores, or no classes.
    """
    found = None if isinstance(value, Mapping) else fields(value, path, ("confidence", "class_id"))
    if found is None:
        return None
    (confidence, confidence_at), (class_id, class_at) = found["confidence"], found["class_id"]
    data: object = getattr(cast("object", value), "data", None)
    called: object = cast("Mapping[str, object]", data).get("class_name") if isinstance(data, Mapping) else None
    if called is not None:
        class_id, class_at = called, f'{path}.data["class_name"]'
    named = names(class_id, class_at, lambda index: f"{class_at}[{index}]", labels)
    if confidence is None and not named:
        confidence = ()
    return Findings(named, scores(confidence, confidence_at, lambda index: f"{confidence_at}[{index}]"))


def read_records(
    value: object, path: str, wanted: Sequence[str], labels: Labels, label: str = "label"
) -> tuple[Findings, Mapping[str, Sequence[Any]]] | None:
    """A list of records, mappings or objects with label, score and the fields `wanted`; None when it is no list.

    Args:
        value: what was returned.
        path: where it stands.
        wanted: the names of further fields.
        labels: the model's class names.
        label: the name of the field that has the class.

    Returns:
        The findings, and the fields wanted of all of them.

    Raises:
        InferenceError: MODEL_FAILED naming the record that cannot be used.
    """
    if not isinstance(value, (list, tuple)):
        return None
    read = columns(items(cast("object", value)) or (), path, (label, "score", *wanted))
    named = [labels.name(each, f"{path}[{index}].{label}") for index, each in enumerate(read[label])]
    scored = table(read, path, ("score",))[:, 0]
    return Findings(named, scores(scored, path, lambda index: f"{path}[{index}].score")), read


def table(read: Mapping[str, Sequence[Any]], path: str, wanted: Sequence[str]) -> NDArray[np.float32]:
    """(N, len(wanted)) the numbers in some fields of N records.

    Args:
        read: the fields, as `read_records` gives them.
        path: where the list of records stands.
        wanted: names of fields.

    Raises:
        InferenceError: MODEL_FAILED naming the record and the field that is no number.
    """
    return np.stack([column(read[name], lambda index, name=name: f"{path}[{index}].{name}") for name in wanted], axis=1)


def check_lengths(path: str, geometry: str, count: int, findings: Findings) -> None:
    """See that there are as many labels and scores as boxes, masks or contours.

    Raises:
        InferenceError: MODEL_FAILED, saying how many there are of each.
    """
    counts = {geometry: count, "scores": len(findings.scores), "labels": len(findings.labels)}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{found} {name}" for name, found in counts.items())
        raise refused(path, f"as many {geometry} as scores and labels", told)


def _of_labels(table: NDArray[np.float32], named: Sequence[str], labels: Labels, path: str) -> NDArray[np.float32]:
    """The score of each finding's own class, from scores of all classes."""
    finite(table, lambda index: f"{path}[{index}]")
    if len(table) != len(named):
        raise refused(path, f"scores of {len(named)} findings", f"shape {table.shape}")
    numbers_of = [labels.number(name) if labels.known else int(name) for name in named]
    for index, number in enumerate(numbers_of):
        if number is None or number >= table.shape[1]:
            raise refused(f"{path}[{index}]", f"a score for the class {named[index]!r}", described(table[index]))
    return table[np.arange(len(table)), np.array(numbers_of, np.intp)]
