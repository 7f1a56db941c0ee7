"""Recorded inferences for tests of truths."""

from typing import Any

from app.plugins.recording.inference import RecordedImage, RecordedInference
from metadata.request import MetadataEntry
from tests.support.data.recorded_rows import recorded_inference

CAR: dict[str, object] = {"label": "car", "xmin": 10.0, "ymin": 10.0, "xmax": 30.0, "ymax": 30.0}
DOG: dict[str, object] = {"label": "dog", "xmin": 40.0, "ymin": 10.0, "xmax": 60.0, "ymax": 40.0}
SHIP: dict[str, object] = {"label": "ship", "cx": 0.5, "cy": 0.5, "w": 0.5, "h": 0.25, "r": 0.3}
_RING = [{"x": 4.0, "y": 4.0}, {"x": 24.0, "y": 4.0}, {"x": 24.0, "y": 24.0}, {"x": 4.0, "y": 24.0}]
PART: dict[str, object] = {"label": "part", "contour": [_RING]}


def found(*records: dict[str, object]) -> list[dict[str, object]]:
    """Return the records of an answer, with scores."""
    return [{**record, "score": 0.75} for record in records]


def detection(name: str, *records: dict[str, object], digest: str = "", **fields: Any) -> RecordedInference:
    """Return an inference of a detector, for an image with this name."""
    values: dict[str, Any] = {
        "request_id": f"r-{name}",
        "metadata": [MetadataEntry("file_name", "str", f"{name}.jpg")],
        "image": RecordedImage(digest=digest or name.encode().hex().zfill(64), width=64, height=48, size=10),
        "records": found(*records),
    }
    return recorded_inference(f"{name}-0-0", **values | fields)
