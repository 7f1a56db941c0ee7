"""Read a label from a JSON line, and find its inference: by id, request id, digest of the image, task, or file name."""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from sqlalchemy import ColumnElement, select

from app.core.wire.json_body import read_json
from app.plugins.feedback.truths.right_answer import Kind, Records, RightAnswer, kind_of, records_by_kind
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.query.filters import indexed_text
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.tables import INDEXED_CHARACTERS, inferences, metadata
from tasks.inference.error import invalid
from tasks.inference.limits import too_large

MAX_BYTES = 1_000_000
"""Maximum size of one truth."""

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


class LabelLine(RightAnswer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of ``POST /inferences/truths``: a right answer, and one or more ways to find its inference.

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


def read_line(line: bytes) -> Label:
    """Return the label in one line. Raise INVALID_REQUEST or TOO_LARGE, naming the field."""
    if len(line) > MAX_BYTES:
        raise too_large(MAX_BYTES, "bytes in a truth", len(line), "")
    answer = read_json(line, LabelLine, subject="line")
    digest = answer.digest and answer.digest.lower()
    found = {"id": answer.id, "request_id": answer.request_id, "digest": digest}
    found = {field: value and indexed_text(value, field) for field, value in found.items()}
    name = answer.metadata.get("file_name")
    found["name"] = name and indexed_text(name, "metadata.file_name")
    if not any(found.values()):
        raise invalid('Expected id, request_id, digest or metadata {"file_name": ...}')
    return Label(**found, answer=answer, records=records_by_kind(answer))


def digest_in(name: str) -> str | None:
    """Return the digest in a file name of an export of recorded images; None for other names."""
    match = _DIGEST.fullmatch(name.rpartition("/")[2].partition(".")[0])
    return match[0] if match else None


def find_inferences(reader: RecordingReader, labels: Sequence[Label]) -> Sequence[Sequence[RecordedInference]]:
    """Return the inferences of each label, the newest first. Those with another kind of answers are left out.

    Raise InferenceError when the store cannot be read.
    """
    found: list[Sequence[RecordedInference]] = [()] * len(labels)
    for field, (condition, keys_of) in _LOOKUPS.items():
        unmatched = [(index, label) for index, label in enumerate(labels) if not found[index]]
        pending = {index: key for index, label in unmatched if (key := getattr(label, field))}
        keys = list(dict.fromkeys(key[:INDEXED_CHARACTERS] for key in pending.values()))
        matches: dict[str, list[RecordedInference]] = {}
        for start in range(0, len(keys), _MAX_KEYS):
            for inference in _search(reader, keys[start : start + _MAX_KEYS], condition):
                for key in dict.fromkeys(key[:INDEXED_CHARACTERS] for key in keys_of(inference)):
                    matches.setdefault(key, []).append(inference)
        for index, key in pending.items():
            candidates = matches.get(key[:INDEXED_CHARACTERS], ())
            found[index] = [inference for inference in candidates if _fits(inference, labels[index])]
    return found


_Condition = Callable[[Sequence[str]], ColumnElement[bool]]


def _search(reader: RecordingReader, keys: Sequence[str], condition: _Condition) -> Sequence[RecordedInference]:
    """Return the inferences with these keys; the newest `_MAX_FOUND` of a single key."""
    found = reader.find(condition(keys), _MAX_FOUND)
    if len(found) < _MAX_FOUND or len(keys) == 1:
        return found
    middle = len(keys) // 2
    return [*_search(reader, keys[:middle], condition), *_search(reader, keys[middle:], condition)]


def _fits(inference: RecordedInference, label: Label) -> bool:
    if inference.explanation or inference.records is None:
        return False
    return not label.records or kind_of(inference.task_type) in label.records


def _with_metadata(keys: Sequence[str], values: Sequence[str]) -> ColumnElement[bool]:
    rows = select(metadata.c.number).where(metadata.c.key.in_(keys), metadata.c.tv.in_(values))
    return inferences.c.number.in_(rows)


def _tasks(inference: RecordedInference) -> Sequence[str]:
    names = {entry.key: str(entry.value) for entry in inference.metadata}
    return [f"{names[_TASK]} {names.get('file_name', '')}"] if _TASK in names else []


def _names(inference: RecordedInference) -> Sequence[str]:
    entries = [entry for entry in inference.metadata if entry.key in _NAMES]
    return [entry.value for entry in entries if isinstance(entry.value, str)]


_LOOKUPS: Mapping[str, tuple[_Condition, Callable[[RecordedInference], Sequence[str]]]] = {
    "id": (inferences.c.id.in_, lambda inference: [inference.id]),
    "request_id": (inferences.c.request_id.in_, lambda inference: [inference.request_id]),
    "digest": (inferences.c.image_digest.in_, lambda inference: [inference.image.digest] if inference.image else []),
    "task": (lambda tasks: _with_metadata([_TASK], [task.partition(" ")[0] for task in tasks]), _tasks),
    "name": (lambda names: _with_metadata(_NAMES, names), _names),
}
"""How to find inferences by keys of each kind, and which of these keys an inference has."""
