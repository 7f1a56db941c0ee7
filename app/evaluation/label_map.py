"""The names that a model has for a dataset's classes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from app.evaluation.answers import Answered
from app.evaluation.datasets.files import json_of
from app.evaluation.extras import EvaluationError

__all__ = ("LabelMap", "mapped", "read_label_map", "unknown_labels")

LabelMap = Mapping[str, str | None]
"""Dataset's label by model's label; None for a class of the model that is left out."""


def read_label_map(path: Path, labels: Sequence[str]) -> LabelMap:
    """A JSON object of dataset's label, or null, by model's label.

    Args:
        path: the file.
        labels: the dataset's.

    Raises:
        EvaluationError: when it is something else, or names a label that the dataset does not have.
    """
    try:
        read = msgspec.convert(json_of(path), dict[str, str | None])
    except msgspec.ValidationError as error:
        raise EvaluationError(f"{path}: Expected the dataset's label, or null, by the model's: {error}") from None
    unknown = sorted({each for each in read.values() if each is not None} - set(labels))
    if unknown:
        raise EvaluationError(f"{path}: {unknown[0]!r} is no label of the dataset; it has {_some(labels)}")
    return read


def mapped(answered: Answered, names: LabelMap) -> Answered:
    """The same with the dataset's labels: those not in `names` as they are, those that are None left out."""
    found = tuple(
        each
        if (label := names.get(each.label, each.label)) == each.label
        else msgspec.structs.replace(each, label=label)
        for each in answered.found
        if names.get(each.label, each.label) is not None
    )
    return msgspec.structs.replace(answered, found=found)


def unknown_labels(answered: Iterable[Answered], labels: Sequence[str]) -> Mapping[str, int]:
    """How often each label was found that the dataset does not have, the most frequent first."""
    known = frozenset(labels)
    counts = Counter(found.label for each in answered for found in each.found if found.label not in known)
    return dict(counts.most_common())


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:20]) + (" ..." if len(labels) > 20 else "")
