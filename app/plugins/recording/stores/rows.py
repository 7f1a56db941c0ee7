"""The rows of one sample: its inference, and the rows that filters search."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from app.plugins.recording.inference import RecordedInference, Truth, image_columns
from app.plugins.recording.stores.tables import INDEXED_CHARACTERS
from metadata.request import MetadataEntry

_MAX_ENTRIES = 256
_MAX_LABELS = 16
_MIN_SCORE = 0.01
_MAX_DEPTH = 64
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_INT64 = range(-(2**63), 2**63)


class MetadataRow(NamedTuple):
    """The columns of `tables.metadata` in order, without the number."""

    place: int
    key: str
    iv: int | None = None
    fv: float | None = None
    tv: str | None = None
    jv: str | None = None


class LabelRow(NamedTuple):
    """The columns of `tables.labels` in order, without the number; `times` is the column `count`."""

    label: str
    score: float | None
    times: int


class Rows(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rows of one sample, or of one rejected request, in all tables."""

    inference: Mapping[str, Any]  # the columns of `tables.inferences` by name, without the number
    metadata: Sequence[MetadataRow]  # the rows of `tables.metadata`
    labels: Sequence[LabelRow]  # the rows of `tables.labels`
    truth: Mapping[str, Any] | None = None  # the columns of `tables.truths` by name, without the number

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        return 500 + sum(len(self.inference[name] or "") for name in ("parameters", "metadata", "records", "message"))


def to_rows(inference: RecordedInference, labels: Sequence[LabelRow] | None = None) -> Rows:
    """Return the rows of an inference.

    Args:
        inference: its records may also be objects with fields, and values may be of other types: they become text.
        labels: the labels to search; those of the records by default.
    """
    entries, records, image = inference.metadata, inference.records, inference.image
    latitude, longitude = position(entries)
    columns = msgspec.structs.asdict(inference) | image_columns(image)
    del columns["image"], columns["truth"]
    columns |= {name: _indexed_text(columns[name]) for name in ("request_id", "model", "version")}
    columns |= {
        "base_id": None if inference.base_id is None else _indexed_text(inference.base_id),
        "image_kept": image is not None and image.kept,
        "latitude": latitude,
        "longitude": longitude,
        "message": _indexed_text(inference.message, len(inference.message)),
        "parameters": _json(inference.parameters),
        "metadata": _json(entries),
        "records": None if records is None else _json(records),
    }
    labels = label_rows(records or ()) if labels is None else labels
    truth = None if inference.truth is None else truth_row(inference.truth)
    return Rows(inference=columns, metadata=metadata_rows(entries), labels=labels, truth=truth)


def truth_row(truth: Truth) -> Mapping[str, Any]:
    """Return the columns of the current truth of an inference by name, without the number."""
    columns = msgspec.structs.asdict(truth)
    columns |= {name: _indexed_text(columns[name], len(columns[name])) for name in ("source", "author", "comment")}
    return columns | {"current": True, "records": None if truth.records is None else _json(truth.records)}


def metadata_rows(entries: Sequence[MetadataEntry]) -> Sequence[MetadataRow]:
    """Return one row for each entry that a filter can search."""
    rows = (_metadata_row(index, entry) for index, entry in enumerate(entries[:_MAX_ENTRIES]))
    return [row for row in rows if row is not None]


def label_rows(records: Sequence[object]) -> Sequence[LabelRow]:
    """Return one row for each label of `records`, objects or dicts, with its best score and its count."""
    scores: dict[str, list[float]] = {}
    counts: Counter[str] = Counter()
    for record in records:
        label, score = label_of(record), field_of(record, "score")
        if isinstance(label, str):
            counts[label] += 1
            # Edited exports may have a whole number.
            number = None if isinstance(score, str) else _finite_or_none(score)
            if number is not None:
                scores.setdefault(label, []).append(number)
    best = {label: max(scores[label]) if label in scores else None for label in counts}
    candidates = [label for label, score in best.items() if score is None or score >= _MIN_SCORE]
    if len(candidates) > _MAX_LABELS:
        candidates = sorted(candidates, key=lambda label: best[label] or 0, reverse=True)[:_MAX_LABELS]
    # Two long labels may be equal after truncation; keep the better one.
    rows = [LabelRow(_indexed_text(label), best[label], counts[label]) for label in reversed(candidates)]
    return list({row.label: row for row in rows}.values())


def _indexed_text(text: str, max_characters: int = INDEXED_CHARACTERS) -> str:
    """Prepare `text` for an indexed column: truncate it, and replace NUL, which PostgreSQL rejects."""
    return text[:max_characters].replace("\0", "\N{REPLACEMENT CHARACTER}")


def position(entries: Sequence[MetadataEntry]) -> tuple[float, float] | tuple[None, None]:
    """Return latitude and longitude in degrees if both reserved keys exist (Chariot, "Inference Store Metadata")."""
    values = {entry.key: _finite_or_none(entry.value) for entry in entries if entry.key in ("latitude", "longitude")}
    latitude, longitude = values.get("latitude"), values.get("longitude")
    if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
        return None, None
    return latitude, longitude


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _metadata_row(index: int, entry: MetadataEntry) -> MetadataRow | None:
    key, value = _indexed_text(entry.key), entry.value
    if isinstance(value, str):
        return MetadataRow(index, key, tv=_indexed_text(value))
    if isinstance(value, int) and value in _INT64:
        return MetadataRow(index, key, iv=value)
    if isinstance(value, int | float):
        number = _finite_or_none(value)
        return None if number is None else MetadataRow(index, key, fv=number)
    if _deeper_than(value, _MAX_DEPTH):
        return None
    # PostgreSQL's JSONB rejects an escaped NUL.
    document = _ESCAPED_NUL.sub("\\1\N{REPLACEMENT CHARACTER}", msgspec.json.encode(value).decode())
    return MetadataRow(index, key, jv=document)


def field_of(record: object, name: str) -> object:
    """Return a field of a record, an object or a dict; None without it."""
    if isinstance(record, dict):
        return cast("dict[str, object]", record).get(name)
    return getattr(record, name, None)


def label_of(record: object) -> object:
    """Return the label of a record, an object or a dict: the class, or the group of an entity; None without one."""
    label = field_of(record, "label")
    return field_of(record, "entity_group") if label is None else label


def _deeper_than(value: object, depth: int) -> bool:
    if isinstance(value, Mapping):
        value = [*cast("Mapping[object, object]", value).values()]
    if not isinstance(value, list):
        return False
    return depth == 0 or any(_deeper_than(item, depth - 1) for item in cast("list[object]", value))


def _finite_or_none(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None
