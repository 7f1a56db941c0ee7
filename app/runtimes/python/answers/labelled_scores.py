"""Read labelled objects from the three supported forms: parallel arrays, supervision's types, and records."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.python.answers.value_parsing import (
    ClassNames,
    column,
    columns,
    describe,
    fields,
    finite,
    invalid_answer,
    items,
    names,
    numbers,
    scores,
)


class LabelledScores(msgspec.Struct, frozen=True, eq=False):
    """The labels and scores of N objects.

    Attributes:
        labels: N class names.
        scores: (N,) float32 in 0..1.
    """

    labels: list[str]
    scores: NDArray[np.float32]


def read_objects(
    value: object,
    path: str,
    geometry: str,
    field_names: Sequence[str],
    labels: ClassNames,
    supervised: Callable[[], tuple[Any, str]],
    forms: str,
) -> tuple[LabelledScores, Any, str]:
    """Read labelled objects from parallel arrays, supervision's types, or records.

    Args:
        value: the return value.
        path: its path in error messages.
        geometry: the key or attribute of parallel arrays with the objects' geometry.
        field_names: the fields of records with the geometry.
        labels: the model's class names.
        supervised: returns the geometry in one of supervision's types, and its path.
        forms: the supported forms, in words.

    Returns:
        The labels and scores, and the geometry with its path.

    Raises:
        InferenceError: MODEL_FAILED for other forms, or with the path of an invalid value.
    """
    if (parallel := read_parallel(value, path, geometry, labels)) is not None:
        return parallel[0], *parallel[1]
    if (labelled := read_supervision(value, path, labels)) is not None:
        return labelled, *supervised()
    if (records := read_records(value, path, field_names, labels)) is not None:
        return records[0], table(records[1], path, field_names), path
    raise invalid_answer(path, forms, describe(value))


def read_parallel(
    value: object, path: str, geometry: str, labels: ClassNames
) -> tuple[LabelledScores, tuple[Any, str]] | None:
    """Read parallel arrays from the keys or attributes `geometry`, scores and labels; return None for other forms.

    The prediction types of `tasks`, torchvision's dicts and MAITE's targets have this form.

    Returns:
        The labels and scores, and the geometry with its path.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    mapping = fields(value, path, (geometry, "scores", "labels"))
    if mapping is None:
        return None
    (label_values, labels_path), (score_values, scores_path) = mapping["labels"], mapping["scores"]
    label_names = names(label_values, labels_path, labels)
    if getattr(score_values, "ndim", 1) == 2:
        score_values = _label_scores(numbers(score_values, scores_path, ("N", "C")), label_names, labels, scores_path)
    return LabelledScores(label_names, scores(score_values, scores_path)), mapping[geometry]


def read_supervision(value: object, path: str, labels: ClassNames) -> LabelledScores | None:
    """Read the labels and scores of supervision's `Detections` or `Classifications`; return None for other types.

    Class names come from ``data["class_name"]`` if it exists, or else from the class numbers.

    Raises:
        InferenceError: MODEL_FAILED if scores or classes are missing.
    """
    mapping = None if isinstance(value, Mapping) else fields(value, path, ("confidence", "class_id"))
    if mapping is None:
        return None
    (confidence, confidence_path), (class_id, class_path) = mapping["confidence"], mapping["class_id"]
    data: object = getattr(cast("object", value), "data", None)
    class_names: object = cast("Mapping[str, object]", data).get("class_name") if isinstance(data, Mapping) else None
    if class_names is not None:
        class_id, class_path = class_names, f'{path}.data["class_name"]'
    label_names = names(class_id, class_path, labels)
    if confidence is None and not label_names:
        confidence = ()
    return LabelledScores(label_names, scores(confidence, confidence_path))


def read_records(
    value: object, path: str, field_names: Sequence[str], labels: ClassNames, label: str = "label"
) -> tuple[LabelledScores, Mapping[str, Sequence[Any]]] | None:
    """Read a list of mappings or objects with label, score and the fields `field_names`; return None for others.

    Args:
        value: the return value.
        path: its path in error messages.
        field_names: names of further fields.
        labels: the model's class names.
        label: name of the field with the class.

    Returns:
        The labels and scores, and the wanted fields as columns.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid record.
    """
    if not isinstance(value, (list, tuple)):
        return None
    by_field = columns(items(cast("object", value)) or (), path, (label, "score", *field_names))
    label_names = [labels.name(name, f"{path}[{index}].{label}") for index, name in enumerate(by_field[label])]
    score_values = table(by_field, path, ("score",))[:, 0]
    return LabelledScores(label_names, scores(score_values, path, lambda index: f"{path}[{index}].score")), by_field


def table(by_field: Mapping[str, Sequence[Any]], path: str, field_names: Sequence[str]) -> NDArray[np.float32]:
    """Stack numeric fields of N records into an array of shape (N, len(wanted)).

    Args:
        by_field: the columns from `read_records`.
        path: path of the list of records in error messages.
        field_names: names of fields.

    Raises:
        InferenceError: MODEL_FAILED with the path of a field that is not a number.
    """
    return np.stack(
        [column(by_field[name], lambda index, name=name: f"{path}[{index}].{name}") for name in field_names], axis=1
    )


def check_lengths(path: str, geometry: str, count: int, labelled: LabelledScores) -> None:
    """Check that the numbers of labels, scores and boxes, masks or contours are equal.

    Raises:
        InferenceError: MODEL_FAILED with the number of each.
    """
    counts = {geometry: count, "scores": len(labelled.scores), "labels": len(labelled.labels)}
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{length} {name}" for name, length in counts.items())
        raise invalid_answer(path, f"equal numbers of {geometry}, scores and labels", got)


def _label_scores(
    table: NDArray[np.float32], label_names: Sequence[str], labels: ClassNames, path: str
) -> NDArray[np.float32]:
    """Select the score of each object's own class from (N, C) scores of all classes."""
    finite(table, path)
    if len(table) != len(label_names):
        raise invalid_answer(path, f"scores of {len(label_names)} objects", f"shape {table.shape}")
    numbers_of = [labels.number(name) if labels.known else int(name) for name in label_names]
    for index, number in enumerate(numbers_of):
        if number is None or number >= table.shape[1]:
            raise invalid_answer(
                f"{path}[{index}]", f"a score for the class {label_names[index]!r}", describe(table[index])
            )
    return table[np.arange(len(table)), np.array(numbers_of, np.intp)]
