"""Export inferences as Parquet, for DuckDB, pandas and other tools."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from app.recording.inference import Batches, Exported, RecordedInference, image_columns, image_from_columns
from app.settings.server import SettingsError
from metadata.entry import MetadataEntry

# pyarrow has no type annotations.
_arrow: Any = import_module("pyarrow")
_parquet: Any = import_module("pyarrow.parquet")

_STRING, _INTEGER, _FLOAT = _arrow.string(), _arrow.int64(), _arrow.float64()

_ENTRY = [("key", _STRING), ("type", _STRING), ("int", _INTEGER), ("float", _FLOAT), ("text", _STRING)]

SCHEMA: Any = _arrow.schema(
    [
        _arrow.field("id", _STRING, nullable=False),
        ("base_id", _STRING),
        ("request_id", _STRING),
        ("input", _arrow.int32()),
        ("datum", _arrow.int32()),
        ("protocol", _STRING),
        ("model", _STRING),
        ("version", _STRING),
        ("task_type", _STRING),
        ("started", _arrow.timestamp("us", tz="UTC")),
        ("duration_us", _INTEGER),
        ("error", _STRING),
        ("message", _STRING),
        ("explanation", _arrow.bool_()),
        ("image_digest", _STRING),
        ("image_width", _arrow.int32()),
        ("image_height", _arrow.int32()),
        ("image_size", _INTEGER),
        ("image_kept", _arrow.bool_()),
        ("labels", _arrow.list_(_STRING)),
        ("scores", _arrow.list_(_FLOAT)),
        ("records", _STRING),
        ("parameters", _STRING),
        ("metadata", _arrow.list_(_arrow.struct(_ENTRY))),
    ]
)
"""`records` and `parameters` are JSON. `text` of a metadata entry has values other than 64-bit ints and floats."""

_INT64 = range(-(2**63), 2**63)


def write_parquet(batches: Batches, file: BinaryIO) -> Exported:
    """Write one row group for each batch, compressed with Zstandard."""
    written = 0
    with _parquet.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for batch in batches:
            rows = [_row(inference) for inference in batch]
            writer.write_batch(_arrow.RecordBatch.from_pylist(rows, SCHEMA))
            written += len(batch)
    return Exported(written=written)


def read_parquet(file: Path) -> Sequence[RecordedInference]:
    """Read what `write_parquet` wrote.

    Raises:
        SettingsError: when the file is not Parquet, or has other columns or values.
    """
    try:
        table = _parquet.read_table(file)
    except _arrow.ArrowInvalid as error:
        raise SettingsError(f"{file} is not a Parquet file: {error}") from None
    if missing := sorted(set(SCHEMA.names) - set(table.schema.names)):
        raise SettingsError(f"{file}: Expected the columns of an export of inferences, without {', '.join(missing)}")
    try:
        table = table.select(SCHEMA.names).cast(SCHEMA)
        started = table.column("started").cast(_INTEGER)
        rows = table.set_column(SCHEMA.names.index("started"), "started", started).to_pylist()
        return [_inference(row) for row in rows]
    except (_arrow.ArrowException, msgspec.MsgspecError, TypeError, ValueError) as error:
        raise SettingsError(f"{file}: Expected the values of an export of inferences: {error}") from None


def _inference(row: Mapping[str, Any]) -> RecordedInference:
    records = row["records"]
    fields: dict[str, Any] = {name: row[name] for name in RecordedInference.__struct_fields__ if name in row}
    fields |= {
        "duration": row["duration_us"],
        "image": image_from_columns(row),
        "records": None if records is None else msgspec.json.decode(records),
        "parameters": msgspec.json.decode(row["parameters"]),
        "metadata": [MetadataEntry(entry["key"], entry["type"], _entry_value(entry)) for entry in row["metadata"]],
    }
    return RecordedInference(**fields)


def _entry_value(entry: Mapping[str, Any]) -> Any:
    for name in ("int", "float"):
        if entry[name] is not None:
            return entry[name]
    return entry["text"] if entry["type"] == "str" else msgspec.json.decode(entry["text"])


def _row(inference: RecordedInference) -> dict[str, Any]:
    """Return the columns; `SCHEMA` leaves out other fields."""
    records = inference.records
    return {
        **msgspec.structs.asdict(inference),
        "duration_us": inference.duration,
        **image_columns(inference.image),
        "labels": None if records is None else [_value_or_none(record.get("label"), str) for record in records],
        "scores": None if records is None else [_value_or_none(record.get("score"), float) for record in records],
        "records": None if records is None else msgspec.json.encode(records).decode(),
        "parameters": msgspec.json.encode(inference.parameters).decode(),
        "metadata": [{"key": entry.key, "type": entry.type, **_value(entry.value)} for entry in inference.metadata],
    }


def _value_or_none(value: object, expected_type: type) -> object:
    if expected_type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value if isinstance(value, expected_type) else None


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, float):
        return {"float": value}
    if isinstance(value, int) and value in _INT64:
        return {"int": value}
    return {"text": value if isinstance(value, str) else msgspec.json.encode(value).decode()}
