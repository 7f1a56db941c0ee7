"""Export one line for each inference: complete as JSONL, and as CSV for spreadsheets."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import BinaryIO

import msgspec

from app.plugins.recording.inference import Batches, Exported, RecordedInference, format_timestamp
from app.plugins.recording.stores.rows import position

COLUMNS: Mapping[str, Callable[[RecordedInference], object]] = {
    "id": attrgetter("id"),
    "started": lambda inference: format_timestamp(inference.started),
    "duration_ms": lambda inference: inference.duration / 1000,
    "model": attrgetter("model"),
    "version": attrgetter("version"),
    "task_type": attrgetter("task_type"),
    "protocol": attrgetter("protocol"),
    "request_id": attrgetter("request_id"),
    "base_id": attrgetter("base_id"),
    "found": lambda inference: None if inference.records is None else len(inference.records),
    "label": lambda inference: best_prediction(inference.records)[0],
    "score": lambda inference: best_prediction(inference.records)[1],
    "verdict": lambda inference: inference.truth and inference.truth.verdict,
    "reason": attrgetter("reason"),
    "error": attrgetter("error"),
    "message": attrgetter("message"),
    "image_digest": lambda inference: inference.image and inference.image.digest,
    "image_width": lambda inference: inference.image and inference.image.width,
    "image_height": lambda inference: inference.image and inference.image.height,
    "latitude": lambda inference: position(inference.metadata)[0],
    "longitude": lambda inference: position(inference.metadata)[1],
    "metadata": lambda inference: _json({entry.key: entry.value for entry in inference.metadata}),
    "parameters": lambda inference: _json(inference.parameters),
    "records": lambda inference: None if inference.records is None else _json(inference.records),
}

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_jsonl(batches: Batches, file: BinaryIO) -> Exported:
    """Write one `RecordedInference` a line with all fields; `msgspec.json.decode` reads it back."""
    written = 0
    encoder = msgspec.json.Encoder()
    for batch in batches:
        file.write(encoder.encode_lines(batch))
        written += len(batch)
    return Exported(written=written)


def write_csv(batches: Batches, file: BinaryIO) -> Exported:
    """Write `COLUMNS` in UTF-8, quoted as in RFC 4180, with nested values as JSON.

    A text that a spreadsheet would parse as a formula gets a leading apostrophe, because any client may have sent it.
    """
    written = 0
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    table = csv.writer(text)
    table.writerow(COLUMNS)
    for batch in batches:
        table.writerows([_cell(column(inference)) for column in COLUMNS.values()] for inference in batch)
        written += len(batch)
    text.detach()
    return Exported(written=written)


def best_prediction(records: Sequence[Mapping[str, object]] | None) -> tuple[str | None, float | None]:
    """Return label and score of the record with the best score, or of the first label if there are no scores."""
    label: str | None = None
    best: float | None = None
    for record in records or ():
        name, score = record.get("label"), record.get("score")
        if not isinstance(name, str):
            continue
        number = float(score) if isinstance(score, int | float) else None
        if label is None or (number is not None and (best is None or number > best)):
            label, best = name, number
    return label, best


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
