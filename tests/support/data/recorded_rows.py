"""Create recorded inferences without a model, and query them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.rows import Rows, to_rows
from app.plugins.recording.stores.sqlite_store import SqliteStore
from metadata.request import MetadataEntry

_TYPES = {str: "str", int: "int", float: "float", dict: "dict"}

SECOND = 1_000_000
DIGEST = "ab" * 32

Value = str | int | float | dict[str, object]


def metadata_entry(key: str, value: Value) -> MetadataEntry:
    """Return an entry with the type of its value."""
    return MetadataEntry(key, _TYPES[type(value)], value)


def recorded_inference(name: str = "1-0-0", **fields: Any) -> RecordedInference:
    """Return an inference of a detector without objects; other fields have arbitrary values."""
    values: dict[str, Any] = {
        "protocol": "kserve-v2", "model": "detector", "version": "1", "task_type": "OBJECT_DETECTION",
        "started": SECOND, "duration": 2500, "metadata": [], "records": [],
    }  # fmt: skip
    return RecordedInference(id=name, **values | fields)


def recorded_rows(
    inference_id: str,
    metadata: Mapping[str, Value] | Sequence[MetadataEntry] = (),
    records: Sequence[Mapping[str, object]] | None = (),
    **columns: object,
) -> Rows:
    """Return the rows of an inference with id `inference_id`; other columns have arbitrary values."""
    entries = [metadata_entry(*pair) for pair in metadata.items()] if isinstance(metadata, Mapping) else list(metadata)
    request_id = f"request {inference_id}"
    rows = to_rows(recorded_inference(inference_id, request_id=request_id, metadata=entries, records=records))
    return msgspec.structs.replace(rows, recording={**rows.recording, **columns})


def write_store(file: Path, *recorded: Rows | RecordedInference) -> str:
    """Write a new store in SQLite, and return its address."""
    store = SqliteStore(file)
    store.open()
    store.write([item if isinstance(item, Rows) else to_rows(item) for item in recorded])
    store.close()
    return str(file)


def inference_ids(inferences: Sequence[RecordedInference]) -> list[str]:
    return [record.id for record in inferences]


def matching_ids(reader: RecordingReader, query: InferenceQuery) -> set[str]:
    return set(inference_ids(reader.page(query, 100).inferences))


def found(**scores: float | None) -> list[dict[str, object]]:
    """Return the records of an answer with these labels."""
    return [{"label": label, "score": score} for label, score in scores.items()]


ALL_ROWS = [
    recorded_rows("nothing"),
    recorded_rows("north", {"camera": "north", "frame": 3, "blur": 0.5}, found(car=0.9), started=10 * SECOND),
    recorded_rows("south", {"camera": "south", "frame": 4, "blur": 3.0}, found(car=0.4), started=20 * SECOND),
    recorded_rows(
        "both",
        [metadata_entry("camera", "north"), metadata_entry("camera", "south"), metadata_entry("frame", 2**63 - 1)],
        found(car=0.2, dog=0.95), started=30 * SECOND, model="other",
    ),
    recorded_rows(
        "odd", {"camera": "50%_off'; DROP TABLE recordings; --", "frame": -1.5, "a.b": "flat"}, started=40 * SECOND
    ),
    recorded_rows("pose", {"pose": {"yaw": 1.5, "none": None}}, protocol="grps", task_type="IMAGE_CLASSIFICATION"),
    recorded_rows("flat", {"pose": {"yaw": "1.5"}}),
    recorded_rows("late", {"frame": "3"}, None, error="deadline_exceeded", message="Too late", base_id="chariot-1"),
    recorded_rows("failed", {}, None, error="model_failed", model="other", request_id="rq-7"),
    recorded_rows(
        "unsure", {}, found(dog=None, cat=0.1), image_digest=DIGEST, image_width=4, image_height=3, image_size=9
    ),
]  # fmt: skip
ALL_IDS = [record.recording["id"] for record in ALL_ROWS]
