"""Create inference events as the engine reports them, for tests of recorders."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from app.core.engine.request_context import RequestContext
from app.core.wire.bytes_elements import BinaryElement
from metadata.request import METADATA_PARAMETER
from tasks.inference.error import ErrorKind
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResult, SampleResult
from tasks.inference.tensor import BytesTensor
from tasks.object_detection import DetectionInput, DetectionParameters, Detections
from tasks.vision.image import Image

LABELS = ("ship", "quay", "crane", "buoy", "ship")


def detection_event(
    *,
    image_bytes: bytes = b"a picture",
    metadata: object = None,
    parameters: Mapping[str, object] | None = None,
    labels: Sequence[str] = LABELS,
    sample_count: int = 1,
    pixels: Image | None = None,
    **changes: Any,
) -> RequestContext:
    """Return the event of a detector: `sample_count` images, one for each input, with `labels` of falling scores."""
    image, count = pixels or Image(np.zeros((320, 640, 3), np.uint8)), len(labels)
    scores, boxes = np.linspace(0.9, 0.5, count), np.arange(4 * count).reshape(count, 4)
    detections = Detections(labels=labels, scores=scores.astype(np.float32), boxes=boxes.astype(np.float32))
    all_parameters: dict[str, object] = dict(parameters or {})
    if metadata is not None:
        all_parameters[METADATA_PARAMETER] = msgspec.json.encode(metadata).decode()
    inputs = tuple(
        BytesTensor(name=f"image-{index}", shape=(1,), elements=[BinaryElement(image_bytes)], parameters=all_parameters)
        for index in range(sample_count)
    )
    item = DetectionInput(image, DetectionParameters())
    samples = [SampleResult(input=place, index=0, item=item, prediction=detections) for place in range(sample_count)]
    result = InferenceResult(outputs=(), batch_size=sample_count, samples=samples)
    values: dict[str, Any] = {
        "protocol": "kserve-v2", "request_id": str(uuid.uuid4()), "id": uuid.uuid4().hex, "model_name": "detector",
        "model_version": "1", "task_type": "OBJECT_DETECTION", "batch_size": sample_count, "total": 5_000_000,
        "request": InferenceRequest(id="", model_name="detector", inputs=inputs), "result": result,
    }  # fmt: skip
    return RequestContext(**values | changes)


def rejected_event(
    kind: ErrorKind = ErrorKind.MODEL_NOT_FOUND, message: str = "Model 'x' is not known"
) -> RequestContext:
    """Return the event of a request that was rejected before it was read."""
    return detection_event(
        model_name="x", model_version="", task_type="", request=None, result=None, outcome=kind, error=message
    )


def event(outcome: ErrorKind | None = None, trace: dict[str, str] | None = None) -> RequestContext:
    """Return an inference of 10 ms."""
    return RequestContext(
        protocol="kserve-v2", request_id="r", trace=trace or {}, model_name="m", model_version="1", outcome=outcome,
        error="no" if outcome else "", batch_size=1, queue=1_000_000, total=10_000_000, decode_ns=2_000_000,
        model_ns=5_000_000, postprocess_ns=1_000_000,
    )  # fmt: skip
