"""Read classes with scores, and labelled objects: from parallel arrays, records and others.

The functions raise an `InferenceError` MODEL_FAILED with the path of the first invalid value.
"""

from collections.abc import Mapping, Sequence, Sized
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


class LabelledObjects(msgspec.Struct, frozen=True, eq=False):
    """The labels and scores of N objects, and their geometry.

    Attributes:
        labels: N class names.
        scores: (N,) float32 in 0..1.
        form: the key or attribute of parallel arrays with the geometry, or `RECORDS`.
        geometry: the geometry as the model returned it; for records a list of the values of their only field, or an
            (N, fields) float32 array.
        path: path of the geometry in error messages.
    """

    labels: list[str]
    scores: NDArray[np.float32]
    form: str
    geometry: Any
    path: str


def check_lengths(path: str, **parts: Sized) -> None:
    """Check that boxes or masks have the same length as the scores and labels, which come last."""
    counts = {name: len(part) for name, part in parts.items()}
    if len(set(counts.values())) > 1:
        expected = f"equal numbers of {', '.join(list(counts)[:-1])} and labels"
        raise invalid_answer(path, expected, ", ".join(f"{length} {name}" for name, length in counts.items()))


def read_classification(value: object, path: str, item: object, labels: ClassNames) -> Classification:
    """Read the scores of one image from any form in ``docs/python_models.md``."""
    del item
    mapping = fields(value, path, ("labels", "scores"))
    if mapping is not None and (isinstance(value, Classification) or items(mapping["labels"][0]) is not None):
        class_names, values = names(*mapping["labels"], labels), scores(*mapping["scores"])
        check_lengths(path, scores=values, labels=class_names)
        if isinstance(value, Classification):
            class_ids = _class_ids(value.class_ids, f"{path}.class_ids", len(class_names))
            return Classification(labels=class_names, scores=values, class_ids=class_ids)
    elif isinstance(value, Mapping):
        by_label = cast("Mapping[object, object]", value)
        keys = list(by_label)
        class_names = [labels.name(key, f"{path}: the key {quote_value(key)}") for key in keys]
        values = scores([*by_label.values()], path, lambda index: f"{path}[{quote_value(keys[index])}]")
    elif (listed := items(value)) is None:
        raise invalid_answer(path, _CLASS_FORMS, describe(value))
    elif isinstance(listed, (list, tuple)) and len(listed) and not isinstance(listed[0], (int, float, np.generic)):
        class_names, values, _ = _read_records(cast("Sequence[object]", listed), path, labels)
    else:
        values = scores(numbers(listed, path, (len(labels.known) or "C",)), path)
        return Classification(labels=[labels.name(index, path) for index in range(len(values))], scores=values)
    # Class numbers are known if all labels belong to the model.
    known = [number for number in map(labels.number, class_names) if number is not None]
    class_ids = known if known and len(known) == len(class_names) else None
    return Classification(labels=class_names, scores=values, class_ids=class_ids)


def _class_ids(value: object, path: str, count: int) -> list[int] | None:
    """Check the numbers of `count` classes, which are answered as INT32."""
    if value is None:
        return None
    numbered = array(value, path)
    is_number = numbered.size == 0 or (numbered.dtype.kind in "iu" and 0 <= numbered.min() <= numbered.max() < 2**31)
    if numbered.shape != (count,) or not is_number:
        raise invalid_answer(path, f"the numbers of {count} classes", describe(value))
    return cast("list[int]", numbered.tolist())


def read_objects(
    value: object, path: str, labels: ClassNames, geometries: Sequence[str], field_names: Sequence[str]
) -> LabelledObjects | None:
    """Read labelled objects from parallel arrays or records; return None for other forms.

    The prediction types of `tasks`, torchvision's dicts and MAITE's targets are parallel arrays.

    Args:
        value: the return value.
        path: its path in error messages.
        labels: the model's class names.
        geometries: the keys or attributes of parallel arrays that may contain the objects' geometry.
        field_names: the fields of records with the geometry.
    """
    for name in geometries:
        if (mapping := fields(value, path, (name, "scores", "labels"))) is not None:
            return LabelledObjects(names(*mapping["labels"], labels), scores(*mapping["scores"]), name, *mapping[name])
    if not isinstance(value, (list, tuple)):
        return None
    class_names, values, by_field = _read_records(cast("Sequence[object]", value), path, labels, field_names)
    geometry: Any = by_field[field_names[0]]
    if len(field_names) > 1:
        geometry = np.stack([column(by_field[name], path, name) for name in field_names], axis=1)
    return LabelledObjects(class_names, values, RECORDS, geometry, path)


def _read_records(
    records: Sequence[object], path: str, labels: ClassNames, field_names: Sequence[str] = ()
) -> tuple[list[str], NDArray[np.float32], Mapping[str, Sequence[Any]]]:
    """Read mappings or objects with the fields label, score, and further ones, which are returned as lists."""
    by_field = columns(records, path, ("label", "score", *field_names))
    class_names = [labels.name(name, f"{path}[{index}].label") for index, name in enumerate(by_field["label"])]
    values = column(by_field["score"], path, "score")
    return class_names, scores(values, path, lambda index: f"{path}[{index}].score"), by_field
