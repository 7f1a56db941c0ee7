"""Read a label from a JSON line, find its inferences, and store it as their truth."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Literal

import msgspec
from sqlalchemy import ColumnElement, false, or_, true

from app.clients.protocol import Records
from app.core.wire.json_body import read_json
from app.plugins.evaluation.recorded_answers import IMAGE_NAMES
from app.plugins.evaluation.truths.judging import Kind, kind_of, make_truth, records_by_kind
from app.plugins.recording.inference import RecordedInference, Truth
from app.plugins.recording.query.filters import contains, indexed_text, storable_text
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.rows import json_text
from app.plugins.recording.stores.tables import metadata, recordings
from app.plugins.recording.truth_store import RightAnswer, TruthStore
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import too_large

_MAX_BYTES = 1_000_000
"""Maximum size of one truth."""
_BATCH = 500
_MAX_SEARCHED = 8
"""Names up to which the store searches its metadata for them. For more, all metadata is read once."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TASK = "label_studio_task"
"""Metadata key of predictions for Label Studio."""


class ImportedLabel(msgspec.Struct, frozen=True, kw_only=True):
    """A right answer, and what is known of its inference. An earlier field counts before a later one."""

    id: str | None = None
    request_id: str | None = None  # id of a request with a single sample
    digest: str | None = None  # SHA-256 of the image file
    task: str | None = None  # number of a task of Label Studio, a space, and the name of its image
    name: str | None = None  # name of the image in the metadata of the request, as ``file_name``
    answer: RightAnswer
    records: Mapping[Kind, Records]  # its records by the kind of answers that they correct; empty for a verdict


class LabelLine(RightAnswer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of a file: a right answer, and one or more ways to find its inference.

    Attributes:
        id: id of the inference.
        request_id: X-Request-ID of a request with a single sample.
        digest: SHA-256 of the image file.
        metadata: ``{"file_name": ...}``, the name of the image in the metadata of its request.
    """

    id: str | None = None
    request_id: str | None = None
    digest: str | None = None
    metadata: Mapping[str, str] = {}


def read_line(line: bytes) -> ImportedLabel:
    """Return the label in one line. Raise INVALID_REQUEST or TOO_LARGE, naming the field."""
    if len(line) > _MAX_BYTES:
        raise too_large(_MAX_BYTES, "bytes in a truth", len(line), "")
    answer = read_json(line, LabelLine, subject="line")
    digest = answer.digest and answer.digest.lower()
    found = {"id": answer.id, "request_id": answer.request_id, "digest": digest}
    found = {field: value and indexed_text(value, field) for field, value in found.items()}
    name = answer.metadata.get("file_name")
    found["name"] = name and storable_text(name, "metadata.file_name")
    if not any(found.values()):
        raise invalid('Expected id, request_id, digest or metadata {"file_name": ...}')
    return ImportedLabel(**found, answer=answer, records=records_by_kind(answer))


def digest_in(name: str) -> str | None:
    """Return the digest in a file name of an export of recorded images; None for other names."""
    match = _DIGEST.fullmatch(name.rpartition("/")[2].partition(".")[0])
    return match[0] if match else None


class LabelOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one label.

    Attributes:
        result: matched and stored; ambiguous, several images fit; unknown, none fits; invalid, it cannot be used.
        ids: the inferences that got the truth; a few of those that fit if it is ambiguous.
        error: why it is invalid.
    """

    result: Literal["matched", "ambiguous", "unknown", "invalid"]
    ids: Sequence[str] = ()
    error: str = ""


def add_labels(truths: TruthStore, labels: Sequence[ImportedLabel]) -> Sequence[LabelOutcome]:
    """Store the truths of the inferences that `labels` belong to, and return an outcome for each.

    A label that names an image is the truth of all its inferences with answers of this kind. Raise InferenceError when
    the store cannot be read or written.
    """
    outcomes: list[LabelOutcome] = []
    writes: dict[str, Truth] = {}
    for label, found in zip(labels, _find_inferences(truths.reader, labels), strict=True):
        ids = [inference.id for inference in found]
        images = {inference.image.digest if inference.image else inference.id for inference in found}
        if not found:
            outcomes.append(LabelOutcome(result="unknown"))
        elif len(images) > 1 or (label.request_id is not None and len(found) > 1):
            outcomes.append(LabelOutcome(result="ambiguous", ids=ids[:10]))
        else:
            try:
                made = [make_truth(item, label.answer, label.records.get(kind_of(item.task_type))) for item in found]
            except InferenceError as error:
                outcomes.append(LabelOutcome(result="invalid", error=str(error)))
                continue
            writes |= zip(ids, made, strict=True)
            outcomes.append(LabelOutcome(result="matched", ids=ids))
    names = list(writes)
    for start in range(0, len(names), _BATCH):
        truths.write({name: writes[name] for name in names[start : start + _BATCH]})
    return outcomes


def _find_inferences(reader: RecordingReader, labels: Sequence[ImportedLabel]) -> Sequence[Sequence[RecordedInference]]:
    """Return the inferences of each label, the newest first. Those with another kind of answers are left out."""
    found: list[Sequence[RecordedInference]] = [()] * len(labels)
    for field, (search, keys_of) in _LOOKUPS.items():
        unmatched = [(index, label) for index, label in enumerate(labels) if not found[index]]
        pending = {index: key for index, label in unmatched if (key := getattr(label, field))}
        matches: dict[str, list[RecordedInference]] = {}
        for inference in search(reader, list(dict.fromkeys(pending.values()))):
            for key in dict.fromkeys(keys_of(inference)):
                matches.setdefault(key, []).append(inference)
        for index, key in pending.items():
            found[index] = [inference for inference in matches.get(key, ()) if _fits(inference, labels[index])]
    return found


def _fits(inference: RecordedInference, label: ImportedLabel) -> bool:
    if inference.explanation or inference.records is None:
        return False
    return not label.records or kind_of(inference.task_type) in label.records


_Search = Callable[[RecordingReader, Sequence[str]], Sequence[RecordedInference]]


def _by_column(column: ColumnElement[str]) -> _Search:
    return lambda reader, keys: [*chain.from_iterable(reader.find_each(column, keys))]


def _by_metadata(names: Sequence[str], value_of: Callable[[str], str]) -> _Search:
    """Return a search for inferences whose metadata has one of the values under one of the names."""

    def search(reader: RecordingReader, keys: Sequence[str]) -> Sequence[RecordedInference]:
        values = {value_of(key) for key in keys}
        # The text of a value in JSON, without quotes, because numbers have none.
        parts = [contains(metadata.c.entries, json_text(value)[1:-1], reader.dialect) for value in values]
        condition = true() if len(values) > _MAX_SEARCHED else or_(false(), *parts)
        numbers = [
            number
            for number, entries in reader.metadata(condition)
            if any(entry.key in names and str(entry.value) in values for entry in entries)
        ]
        return [*chain.from_iterable(reader.find_each(recordings.c.number, numbers))]

    return search


def _tasks(inference: RecordedInference) -> Sequence[str]:
    names = {entry.key: str(entry.value) for entry in inference.metadata}
    return [f"{names[_TASK]} {names.get('file_name', '')}"] if _TASK in names else []


def _names(inference: RecordedInference) -> Sequence[str]:
    entries = [entry for entry in inference.metadata if entry.key in IMAGE_NAMES]
    return [entry.value for entry in entries if isinstance(entry.value, str)]


_LOOKUPS: Mapping[str, tuple[_Search, Callable[[RecordedInference], Sequence[str]]]] = {
    "id": (_by_column(recordings.c.id), lambda inference: [inference.id]),
    "request_id": (_by_column(recordings.c.request_id), lambda inference: [inference.request_id]),
    "digest": (
        _by_column(recordings.c.image_digest),
        lambda inference: [inference.image.digest] if inference.image else [],
    ),
    "task": (_by_metadata([_TASK], lambda task: task.partition(" ")[0]), _tasks),
    "name": (_by_metadata(IMAGE_NAMES, str), _names),
}
"""How to find inferences by keys of each kind, the newest first, and which of these keys an inference has."""
