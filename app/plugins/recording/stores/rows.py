"""The rows of one sample: its inference, its metadata, and its labels."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from app.plugins.recording.inference import RecordedInference, Selection, image_columns
from app.plugins.recording.stores.tables import INDEXED_CHARACTERS
from metadata.request import MetadataEntry, MetadataValue

_MAX_LABELS = 16
_MIN_SCORE = 0.01
NUMBER = "number"
"""The stored type of integers and floats."""
_entries_decoder = msgspec.json.Decoder(list[tuple[str, str, MetadataValue]])


class Rows(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rows of one sample, or of one rejected request, in all tables."""

    recording: Mapping[str, Any]  # the columns of `tables.recordings` by name, without the number
    metadata: str | None  # the column `entries` of `tables.metadata`; None without a row
    labels: Mapping[str, float | None]  # the score in each row of `tables.labels`, by label

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        texts = [self.metadata, *(self.recording[name] for name in ("parameters", "records", "message"))]
        return 500 + sum(len(text or "") for text in texts)


def to_rows(inference: RecordedInference, labels: Mapping[str, float | None] | None = None) -> Rows:
    """Return the rows of an inference.

    Args:
        inference: its records may also be objects with fields, and values may be of other types: they become text.
        labels: the labels to search; by default the labels of the records.
    """
    records, image = inference.records, inference.image
    columns = msgspec.structs.asdict(inference) | image_columns(image)
    del columns["image"], columns["metadata"]
    selection = Selection(reason=columns.pop("reason"), probability=columns.pop("probability"))
    columns |= {name: _storable(columns[name]) for name in ("request_id", "model", "version")}
    columns |= {
        "base_id": None if inference.base_id is None else _storable(inference.base_id),
        "image_kept": image is not None and image.kept,
        "message": _storable(inference.message, len(inference.message)),
        "selection": json_text(selection),
        "parameters": json_text(inference.parameters),
        "records": None if records is None else json_text(records),
        "truth": None if inference.truth is None else json_text(inference.truth),
        "shadow": None,
    }
    metadata = encode_entries(inference.metadata) if inference.metadata else None
    return Rows(recording=columns, metadata=metadata, labels=best_labels(records or ()) if labels is None else labels)


def json_text(value: object) -> str:
    """Return compact JSON. Values of other types become text."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def encode_entries(entries: Sequence[MetadataEntry]) -> str:
    """Return entries as JSON with a line for each: a line cannot begin inside a value, so that filters find entries."""
    return "[" + ",".join(entry_line(entry.key, _stored_type(entry), entry.value) for entry in entries) + "]"


def entry_line(key: str, stored_type: str, value: object) -> str:
    """Return the line of one entry, from its line feed to its closing bracket."""
    return "\n" + json_text((key, stored_type, value))


def _stored_type(entry: MetadataEntry) -> str:
    is_number = entry.type in ("int", "float") and isinstance(entry.value, int | float)
    return NUMBER if is_number else entry.type


def decode_entries(text: str | None) -> Sequence[MetadataEntry]:
    """Return the entries in the column `entries`; none without a row."""
    return [
        MetadataEntry(key, type(value).__name__ if stored_type == NUMBER else stored_type, value)
        for key, stored_type, value in (_entries_decoder.decode(text) if text else ())
    ]


def best_labels(records: Sequence[object]) -> Mapping[str, float | None]:
    """Return the best score of each label of `records`, objects or dicts."""
    best: dict[str, float | None] = {}
    for record in records:
        label, score = field_of(record, "label"), finite_or_none(field_of(record, "score"))
        if isinstance(label, str):
            known = best.setdefault(label, score)
            if known is None or (score is not None and score > known):
                best[label] = score
    candidates = [label for label, score in best.items() if score is None or score >= _MIN_SCORE]
    if len(candidates) > _MAX_LABELS:
        candidates = sorted(candidates, key=lambda label: best[label] or 0, reverse=True)[:_MAX_LABELS]
    # Two long labels may be equal after truncation; keep the better one.
    return {_storable(label): best[label] for label in reversed(candidates)}


def _storable(text: str, max_characters: int = INDEXED_CHARACTERS) -> str:
    """Truncate `text`, and replace NUL, which PostgreSQL rejects."""
    return text[:max_characters].replace("\0", "\N{REPLACEMENT CHARACTER}")


def field_of(record: object, name: str) -> object:
    """Return a field of a record, an object or a dict; None without it."""
    if isinstance(record, dict):
        return cast("dict[str, object]", record).get(name)
    return getattr(record, name, None)


def finite_or_none(value: object) -> float | None:
    """Return a number as a float; None for other values. Edited exports may have integers that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return None
    return float(value)
