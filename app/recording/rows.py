"""What is written of one datum: its row, and the rows that it is found by."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from app.recording.tables import INDEXED_CHARACTERS
from metadata.entry import MetadataEntry

__all__ = ("InferenceRow", "LabelRow", "MetadataRow", "Rows", "indexed", "label_rows", "metadata_rows", "position")

_MOST_ENTRIES = 256
_MOST_LABELS = 16
_LEAST_SCORE = 0.01
_DEEPEST = 64
_INT64 = range(-(2**63), 2**63)


class InferenceRow(NamedTuple):
    """The columns of `tables.inferences` in their order, but for the number."""

    id: str
    base_id: str | None
    request_id: str
    input: int
    datum: int
    protocol: str
    model: str
    version: str
    task_type: str
    started: int
    duration: int
    image_digest: str | None
    image_width: int | None
    image_height: int | None
    image_size: int | None
    image_kept: bool
    error: str | None
    explanation: bool
    latitude: float | None
    longitude: float | None
    message: str
    parameters: str
    metadata: str
    records: str | None


class MetadataRow(NamedTuple):
    """The columns of `tables.metadata` in their order, but for the number."""

    place: int
    key: str
    iv: int | None = None
    fv: float | None = None
    tv: str | None = None
    jv: str | None = None


class LabelRow(NamedTuple):
    """The columns of `tables.labels` in their order, but for the number."""

    label: str
    score: float | None
    times: int


class Rows(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One datum, or one refusal, in the three tables."""

    inference: InferenceRow
    metadata: Sequence[MetadataRow]
    labels: Sequence[LabelRow]

    @property
    def size(self) -> int:
        """About as many bytes as it has."""
        row = self.inference
        return 500 + len(row.parameters) + len(row.metadata) + len(row.records or "") + len(row.message)


def indexed(text: str, most: int = INDEXED_CHARACTERS) -> str:
    """`text` as it can stand in an indexed column: cut, and without NUL, which PostgreSQL does not take."""
    return text[:most].replace("\0", "\N{REPLACEMENT CHARACTER}")


def metadata_rows(entries: Sequence[MetadataEntry]) -> Sequence[MetadataRow]:
    """Rows of what can be looked for; an entry whose value no filter could read has none."""
    rows = [_metadata_row(place, entry) for place, entry in enumerate(entries[:_MOST_ENTRIES])]
    return [row for row in rows if row is not None]


def label_rows(records: Sequence[object]) -> Sequence[LabelRow]:
    """One row for each label of `records`: its best score, and how often it was found."""
    found: dict[str, tuple[float | None, int]] = {}
    for record in records:
        label: object = getattr(record, "label", None)
        if not isinstance(label, str):
            continue
        score: object = getattr(record, "score", None)
        if not isinstance(score, float) or not math.isfinite(score):
            score = None
        if (before := found.get(label)) is None:
            found[label] = (score, 1)
        else:
            best, count = before
            found[label] = (score if best is None or (score is not None and score > best) else best, count + 1)
    worthwhile = [each for each in found.items() if each[1][0] is None or each[1][0] >= _LEAST_SCORE]
    if len(worthwhile) > _MOST_LABELS:
        worthwhile = sorted(worthwhile, key=lambda each: each[1][0] or 0, reverse=True)[:_MOST_LABELS]
    rows: dict[str, LabelRow] = {}
    # Two long labels may begin alike; the better one stays.
    for label, (score, count) in reversed(worthwhile):
        cut = indexed(label)
        rows[cut] = LabelRow(cut, score, count)
    return list(rows.values())


def position(entries: Sequence[MetadataEntry]) -> tuple[float, float] | tuple[None, None]:
    """Latitude and longitude in degrees (Chariot, "Inference Store Metadata": the reserved keys), where both are."""
    values = {each.key: each.value for each in entries if each.key in ("latitude", "longitude")}
    if len(values) < 2:
        return None, None
    latitude, longitude = _degrees(values["latitude"], 90), _degrees(values["longitude"], 180)
    return (None, None) if latitude is None or longitude is None else (latitude, longitude)


def _metadata_row(place: int, entry: MetadataEntry) -> MetadataRow | None:
    key, value = indexed(entry.key), entry.value
    if isinstance(value, str):
        return MetadataRow(place, key, tv=indexed(value))
    if isinstance(value, int) and value in _INT64:
        return MetadataRow(place, key, iv=value)
    if isinstance(value, float) and math.isfinite(value):
        return MetadataRow(place, key, fv=value)
    if isinstance(value, int | float):
        number = _finite(value)
        return None if number is None else MetadataRow(place, key, fv=number)
    if _deeper_than(value, _DEEPEST):
        return None
    # An escaped NUL is more than PostgreSQL's documents take.
    document = msgspec.json.encode(value).decode()
    return MetadataRow(place, key, jv=_without_nul(document) if "\\u0000" in document else document)


def _without_nul(document: str) -> str:
    return msgspec.json.encode(_replaced(msgspec.json.decode(document))).decode()


def _replaced(value: object) -> object:
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, dict):
        return {_replaced(key): _replaced(each) for key, each in cast("dict[object, object]", value).items()}
    return [_replaced(each) for each in cast("list[object]", value)] if isinstance(value, list) else value


def _deeper_than(value: object, depth: int) -> bool:
    if isinstance(value, Mapping):
        inner = list(cast("Mapping[object, object]", value).values())
    elif isinstance(value, list):
        inner = cast("list[object]", value)
    else:
        return False
    return depth == 0 or any(_deeper_than(each, depth - 1) for each in inner)


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _degrees(value: object, most: int) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    number = _finite(value)
    return number if number is not None and -most <= number <= most else None
