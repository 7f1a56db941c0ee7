"""Find the inference that a label belongs to: by id, request id, digest of the image, task, or file name."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, select

from app.plugins.feedback.truths.right_answer import Kind, Records, RightAnswer, kind_of
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.tables import INDEXED_CHARACTERS, inferences, metadata

_MAX_KEYS = 200
_MAX_FOUND = 2000
"""Maximum number of inferences that one query returns. An image that was sent more often is ambiguous."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAMES = ("file_name", "filename", "file", "image_name", "image", "name", "path")
"""Metadata keys that clients use for the name of an image."""
_TASK = "label_studio_task"
"""Metadata key of predictions for Label Studio."""


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A right answer, and what is known of its inference. An earlier field counts before a later one."""

    id: str | None = None
    request_id: str | None = None  # id of a request with a single sample
    digest: str | None = None  # SHA-256 of the image file
    task: str | None = None  # number of a task of Label Studio, a space, and the name of its image
    name: str | None = None  # name of the image in the metadata of the request, as ``file_name``
    answer: RightAnswer
    records: Mapping[Kind, Records]  # its records by the kind of answers that they correct; empty for a verdict


def digest_in(name: str) -> str | None:
    """Return the digest in a file name of an export of recorded images; None for other names."""
    match = _DIGEST.fullmatch(name.rpartition("/")[2].partition(".")[0])
    return match[0] if match else None


def find_inferences(reader: RecordingReader, labels: Sequence[Label]) -> Sequence[Sequence[RecordedInference]]:
    """Return the inferences of each label, the newest first. Those with another kind of answers are left out.

    Raises:
        InferenceError: when the store cannot be read.
    """
    found: list[Sequence[RecordedInference]] = [()] * len(labels)
    for field, lookup in _LOOKUPS.items():
        pending = {index: getattr(label, field) for index, label in enumerate(labels) if not found[index]}
        keys = list(dict.fromkeys(key for key in pending.values() if key))
        matches: dict[str, list[RecordedInference]] = {}
        for start in range(0, len(keys), _MAX_KEYS):
            for inference in _search(reader, keys[start : start + _MAX_KEYS], lookup):
                for key in lookup.keys(inference):
                    matches.setdefault(key, []).append(inference)
        for index, key in pending.items():
            if key:
                fitting = [
                    inference
                    for inference in matches.get(key[:INDEXED_CHARACTERS], ())
                    if _fits(inference, labels[index])
                ]
                found[index] = fitting
    return found


class _Lookup(msgspec.Struct, frozen=True):
    """How to find inferences by keys of one kind, and which of these keys an inference has."""

    condition: Callable[[Sequence[str]], ColumnElement[bool]]
    keys: Callable[[RecordedInference], Sequence[str]]


def _search(reader: RecordingReader, keys: Sequence[str], lookup: _Lookup) -> Sequence[RecordedInference]:
    """Return the inferences with these keys; the newest `_MAX_FOUND` of a single key."""
    found = reader.find(lookup.condition([key[:INDEXED_CHARACTERS] for key in keys]), _MAX_FOUND)
    if len(found) < _MAX_FOUND or len(keys) == 1:
        return found
    middle = len(keys) // 2
    return [*_search(reader, keys[:middle], lookup), *_search(reader, keys[middle:], lookup)]


def _fits(inference: RecordedInference, label: Label) -> bool:
    if inference.explanation or inference.records is None:
        return False
    return not label.records or kind_of(inference.task_type) in label.records


def _by_column(column: Column[Any], keys: Callable[[RecordedInference], Sequence[str]]) -> _Lookup:
    return _Lookup(lambda values: column.in_(values), keys)


def _with_name(names: Sequence[str]) -> ColumnElement[bool]:
    rows = select(metadata.c.number).where(metadata.c.key.in_(_NAMES), metadata.c.tv.in_(names))
    return inferences.c.number.in_(rows)


def _of_task(tasks: Sequence[str]) -> ColumnElement[bool]:
    numbers = [task.partition(" ")[0] for task in tasks]
    rows = select(metadata.c.number).where(metadata.c.key == _TASK, metadata.c.tv.in_(numbers))
    return inferences.c.number.in_(rows)


def _tasks(inference: RecordedInference) -> Sequence[str]:
    names = {entry.key: str(entry.value) for entry in inference.metadata}
    return [f"{names[_TASK]} {names.get('file_name', '')}"[:INDEXED_CHARACTERS]] if _TASK in names else []


def _names(inference: RecordedInference) -> Sequence[str]:
    values = (entry.value for entry in inference.metadata if entry.key in _NAMES)
    return list(dict.fromkeys(value[:INDEXED_CHARACTERS] for value in values if isinstance(value, str)))


_LOOKUPS: Mapping[str, _Lookup] = {
    "id": _by_column(inferences.c.id, lambda inference: [inference.id]),
    "request_id": _by_column(inferences.c.request_id, lambda inference: [inference.request_id]),
    "digest": _by_column(
        inferences.c.image_digest, lambda inference: [inference.image.digest] if inference.image else []
    ),
    "task": _Lookup(_of_task, _tasks),
    "name": _Lookup(_with_name, _names),
}
