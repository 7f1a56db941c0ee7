"""Read classes with scores, and labelled objects: from parallel arrays, records and others."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.python.outputs.value_parsing import (
    ClassNames,
    array,
    column,
    columns,
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

_CLASS_FORMS = (
    "Classification, a dict of scores by label, an array of scores by class number, or a list of label and score"
)
RECORDS = "records"
"""The form of objects besides parallel arrays."""


class LabelledScores(msgspec.Struct, frozen=True, eq=False):
    """The labels and scores of N classes or objects.

    Attributes:
        labels: N class names.
        scores: (N,) float32 in 0..1.
    """

    labels: list[str]
    scores: NDArray[np.float32]

    def check_lengths(self, path: str, **geometry: int) -> None:
        """Check that the numbers of labels, scores and boxes, masks or contours are equal.

        Raises:
            InferenceError: MODEL_FAILED with the number of each.
        """
        counts = {**geometry, "scores": len(self.scores), "labels": len(self.labels)}
        if len(set(counts.values())) > 1:
            expected = f"equal numbers of {', '.join(list(counts)[:-1])} and labels"
            raise invalid_answer(path, expected, ", ".join(f"{length} {name}" for name, length in counts.items()))


class Objects(LabelledScores, frozen=True, eq=False):
    """The labels and scores of N objects, and their geometry.

    Attributes:
        form: the key or attribute of parallel arrays with the geometry, or `RECORDS`.
        geometry: the geometry as the model returned it; for records a list of the values of their only field, or an
            (N, fields) float32 array.
        path: path of the geometry in error messages.
    """

    form: str
    geometry: Any
    path: str


def read_classification(value: object, path: str, item: object, labels: ClassNames) -> Classification:
    """Read the scores of one image or text from any form in ``docs/python_models.md``.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    del item
    mapping = fields(value, path, ("labels", "scores"))
    if mapping is not None and (isinstance(value, Classification) or items(mapping["labels"][0]) is not None):
        labelled = LabelledScores(names(*mapping["labels"], labels), scores(*mapping["scores"]))
        labelled.check_lengths(path)
        if isinstance(value, Classification):
            class_ids = _class_ids(value.class_ids, f"{path}.class_ids", len(labelled.labels))
            return Classification(labels=labelled.labels, scores=labelled.scores, class_ids=class_ids)
    elif isinstance(value, Mapping):
        labelled = _by_label(cast("Mapping[object, object]", value), path, labels)
    elif (listed := items(value)) is None:
        raise invalid_answer(path, _CLASS_FORMS, describe(value))
    elif isinstance(listed, (list, tuple)) and len(listed) and not isinstance(listed[0], (int, float, np.generic)):
        labelled = read_records(cast("Sequence[object]", listed), path, labels)[0]
    else:
        score_values = scores(numbers(listed, path, (len(labels.known) or "C",)), path)
        return Classification(
            labels=[labels.name(index, path) for index in range(len(score_values))], scores=score_values
        )
    # Class numbers are known if all labels belong to the model.
    numbered = [labels.number(name) for name in labelled.labels]
    known = [number for number in numbered if number is not None]
    class_ids = known if len(known) == len(numbered) and known else None
    return Classification(labels=labelled.labels, scores=labelled.scores, class_ids=class_ids)


def _class_ids(value: object, path: str, count: int) -> list[int] | None:
    """Check the numbers of `count` classes, which are answered as INT32."""
    if value is None:
        return None
    numbered = array(value, path)
    is_number = numbered.size == 0 or (numbered.dtype.kind in "iu" and 0 <= numbered.min() <= numbered.max() < 2**31)
    if numbered.shape != (count,) or not is_number:
        raise invalid_answer(path, f"the numbers of {count} classes", describe(value))
    return cast("list[int]", numbered.tolist())


def _by_label(value: Mapping[object, object], path: str, labels: ClassNames) -> LabelledScores:
    keys = list(value)
    label_names = [labels.name(key, f"{path}: the key {quote_value(key)}") for key in keys]
    score_values = scores(list(value.values()), path, lambda index: f"{path}[{quote_value(keys[index])}]")
    return LabelledScores(label_names, score_values)


def read_objects(
    value: object,
    path: str,
    labels: ClassNames,
    geometries: Sequence[str],
    field_names: Sequence[str],
    label: str = "label",
) -> Objects | None:
    """Read labelled objects from parallel arrays or records; return None for other forms.

    The prediction types of `tasks`, torchvision's dicts and MAITE's targets are parallel arrays.

    Args:
        value: the return value.
        path: its path in error messages.
        labels: the model's class names.
        geometries: the keys or attributes of parallel arrays that may contain the objects' geometry.
        field_names: the fields of records with the geometry.
        label: the field of records with the class.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    for name in geometries:
        if (mapping := fields(value, path, (name, "scores", "labels"))) is not None:
            return Objects(names(*mapping["labels"], labels), scores(*mapping["scores"]), name, *mapping[name])
    if isinstance(value, (list, tuple)):
        records = cast("Sequence[object]", value)
        labelled, by_field = read_records(records, path, labels, field_names, label)
        geometry = by_field[field_names[0]] if len(field_names) == 1 else _table(by_field, path, field_names)
        return Objects(labelled.labels, labelled.scores, RECORDS, geometry, path)
    return None


def read_records(
    records: Sequence[object], path: str, labels: ClassNames, field_names: Sequence[str] = (), label: str = "label"
) -> tuple[LabelledScores, Mapping[str, Sequence[Any]]]:
    """Read mappings or objects with the class in the field `label`, score, and further fields, returned as lists.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid record.
    """
    by_field = columns(records, path, (label, "score", *field_names))
    label_names = [labels.name(name, f"{path}[{index}].{label}") for index, name in enumerate(by_field[label])]
    score_values = _table(by_field, path, ("score",))[:, 0]
    return LabelledScores(label_names, scores(score_values, path, lambda index: f"{path}[{index}].score")), by_field


def _table(by_field: Mapping[str, Sequence[Any]], path: str, field_names: Sequence[str]) -> NDArray[np.float32]:
    """Stack numeric fields of N records, each a list, into an array of shape (N, number of fields).

    Raises:
        InferenceError: MODEL_FAILED with the path of a field that is not a number.
    """
    return np.stack(
        [column(by_field[name], lambda index, name=name: f"{path}[{index}].{name}") for name in field_names], axis=1
    )
