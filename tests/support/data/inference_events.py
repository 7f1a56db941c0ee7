"""Create inference events as the engine reports them, for tests of recorders."""

import time
import uuid
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from app.core.engine.request_context import RequestContext
from app.core.wire.bytes_elements import BinaryElement
from metadata.request import METADATA_PARAMETER, read_metadata
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
    base_id: str | None = None,
    sample_count: int = 1,
    pixels: Image | None = None,
    **changes: object,
) -> RequestContext:
    """Return the event of a detector: `sample_count` images, one for each input, with `labels` of falling scores."""
    image = pixels or Image(np.zeros((320, 640, 3), np.uint8))
    count = len(labels)
    detections = Detections(
        labels=labels,
        scores=np.linspace(0.9, 0.5, count, dtype=np.float32),
        boxes=np.arange(4 * count, dtype=np.float32).reshape(count, 4),
    )
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
    event = RequestContext(
        protocol="kserve-v2",
        request_id=str(uuid.uuid4()),
        base_id=base_id,
        model_name="detector",
        model_version="1",
        outcome=None,
        error="",
        batch_size=sample_count,
        queue=0,
        total=5_000_000,
        metadata=[read_metadata(all_parameters[METADATA_PARAMETER])] if METADATA_PARAMETER in all_parameters else [],
        id=uuid.uuid4().hex,
        timestamp=time.time_ns(),
        task_type="OBJECT_DETECTION",
        request=InferenceRequest(id="", model_name="detector", inputs=inputs),
        result=result,
    )
    return msgspec.structs.replace(event, **changes)


def rejected_event(
    kind: ErrorKind = ErrorKind.MODEL_NOT_FOUND, message: str = "Model 'x' is not known"
) -> RequestContext:
    """Return the event of a request that was refused before it was read."""
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
