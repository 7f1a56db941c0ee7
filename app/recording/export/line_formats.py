"""Export one line for each inference: complete as JSONL, and as CSV for spreadsheets."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import msgspec

from app.recording.inference import Batches, Exported, RecordedInference, format_timestamp

__all__ = ("best_prediction", "write_csv", "write_jsonl")

COLUMNS = (
    "id",
    "started",
    "duration_ms",
    "model",
    "version",
    "task_type",
    "protocol",
    "request_id",
    "base_id",
    "found",
    "label",
    "score",
    "error",
    "message",
    "image_digest",
    "image_width",
    "image_height",
    "latitude",
    "longitude",
    "metadata",
    "parameters",
    "records",
)

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
        table.writerows([_cell(value) for value in _row(inference)] for inference in batch)
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


def _row(inference: RecordedInference) -> tuple[object, ...]:
    label, score = best_prediction(inference.records)
    image = inference.image
    metadata = {entry.key: entry.value for entry in inference.metadata}
    return (
        inference.id,
        format_timestamp(inference.started),
        inference.duration / 1000,
        inference.model,
        inference.version,
        inference.task_type,
        inference.protocol,
        inference.request_id,
        inference.base_id,
        None if inference.records is None else len(inference.records),
        label,
        score,
        inference.error,
        inference.message,
        image and image.digest,
        image and image.width,
        image and image.height,
        _number(metadata.get("latitude")),
        _number(metadata.get("longitude")),
        msgspec.json.encode(metadata).decode(),
        msgspec.json.encode(inference.parameters).decode(),
        None if inference.records is None else msgspec.json.encode(inference.records).decode(),
    )


def _number(value: object) -> object:
    return value if isinstance(value, int | float) else None


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
