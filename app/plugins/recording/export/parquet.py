"""Export inferences as Parquet, for DuckDB, pandas and other tools."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from app.core.settings.server import SettingsError
from app.plugins.recording.inference import (
    Batches,
    Exported,
    RecordedImage,
    RecordedInference,
    check_numbers,
    image_columns,
)
from app.plugins.recording.stores.rows import finite_or_none

# pyarrow has no type annotations.
_arrow: Any = import_module("pyarrow")
_parquet: Any = import_module("pyarrow.parquet")

_STRING, _INTEGER, _FLOAT = _arrow.string(), _arrow.int64(), _arrow.float64()

_ENTRY = [("key", _STRING), ("type", _STRING), ("int", _INTEGER), ("float", _FLOAT), ("text", _STRING)]

PARQUET_SCHEMA: Any = _arrow.schema(
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
        ("reason", _STRING),
        ("probability", _FLOAT),
        ("truth", _STRING),
    ]
)
"""`records`, `parameters` and `truth` are JSON. `text` of an entry has values that are no 64-bit ints or floats."""

_EXPECTED = "Expected the values of an export of inferences"
_INT64 = range(-(2**63), 2**63)


def write_parquet(batches: Batches, file: BinaryIO) -> Exported:
    """Write one row group for each batch, compressed with Zstandard."""
    written = 0
    with _parquet.ParquetWriter(file, PARQUET_SCHEMA, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(to_arrow(batch))
            written += len(batch)
    return Exported(written=written)


def to_arrow(inferences: Sequence[RecordedInference]) -> Any:
    """Return inferences as a ``pyarrow.RecordBatch`` of `PARQUET_SCHEMA`."""
    return _arrow.RecordBatch.from_pylist([_row(inference) for inference in inferences], PARQUET_SCHEMA)


def read_parquet(file: Path) -> Sequence[RecordedInference]:
    """Read what `write_parquet` wrote.

    Raise SettingsError when the file is not Parquet, or has other columns or values.
    """
    try:
        table = _parquet.read_table(file)
    except (_arrow.ArrowException, OSError) as error:
        raise SettingsError(f"{file} is not a Parquet file: {error}") from None
    if missing := sorted(set(PARQUET_SCHEMA.names) - set(table.schema.names)):
        raise SettingsError(f"{file}: Expected the columns of an export of inferences, without {', '.join(missing)}")
    columns = {field.name: _cast(file, table.column(field.name), field) for field in PARQUET_SCHEMA}
    columns["started"] = columns["started"].cast(_INTEGER)
    inferences: list[RecordedInference] = []
    for number, row in enumerate(_arrow.table(columns).to_pylist(), 1):
        try:
            inferences.append(check_numbers(msgspec.convert(_fields(row), RecordedInference)))
        except ValueError as error:
            raise SettingsError(f"{file}: row {number}: {_EXPECTED}: {error}") from None
    return inferences


def _cast(file: Path, column: Any, field: Any) -> Any:
    """Convert a column to the type of the schema, such as integers that pandas wrote as floats."""
    try:
        return column.cast(field.type)
    except _arrow.ArrowException as error:
        raise SettingsError(f"{file}: {_EXPECTED}: {field.name}: {error}") from None


def _fields(row: Mapping[str, Any]) -> Mapping[str, Any]:
    fields: dict[str, Any] = {name: row[name] for name in RecordedInference.__struct_fields__ if name in row}
    image = {name: row[f"image_{name}"] for name in RecordedImage.__struct_fields__}
    return fields | {
        "duration": row["duration_us"],
        "image": None if image["digest"] is None else image,
        "records": None if row["records"] is None else _decode(row["records"], "records"),
        "parameters": _decode(row["parameters"], "parameters"),
        "metadata": row["metadata"] and [entry and _entry(entry) for entry in row["metadata"]],
        "truth": None if row["truth"] is None else _decode(row["truth"], "truth"),
    }


def _entry(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    value = entry["float"] if entry["int"] is None else entry["int"]
    if value is None:
        value = entry["text"] if entry["type"] == "str" else _decode(entry["text"], "metadata.text")
    return {"key": entry["key"], "type": entry["type"], "value": value}


def _decode(text: str | None, field: str) -> object:
    try:
        return msgspec.json.decode(text or "")
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{field}: {error}") from None


def _row(inference: RecordedInference) -> dict[str, Any]:
    """Return the columns; `PARQUET_SCHEMA` leaves out other fields."""
    records = inference.records
    return {
        **msgspec.structs.asdict(inference),
        "duration_us": inference.duration,
        **image_columns(inference.image),
        "labels": records and [label if isinstance(label := record.get("label"), str) else None for record in records],
        "scores": records and [finite_or_none(record.get("score")) for record in records],
        "records": None if records is None else msgspec.json.encode(records).decode(),
        "parameters": msgspec.json.encode(inference.parameters).decode(),
        "truth": None if inference.truth is None else msgspec.json.encode(inference.truth).decode(),
        "metadata": [{"key": entry.key, "type": entry.type, **_value(entry.value)} for entry in inference.metadata],
    }


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, float):
        return {"float": value}
    if isinstance(value, int) and value in _INT64:
        return {"int": value}
    return {"text": value if isinstance(value, str) else msgspec.json.encode(value).decode()}
