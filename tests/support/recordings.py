"""Create inference events as the engine reports them, for tests of recorders."""

import time
import uuid
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from app.engine.answered import Datum, InferenceResult, Timings
from app.engine.events import InferenceEvent, RequestInfo
from app.protocols.bytes_elements import BinaryElement
from metadata.entry import PARAMETER, read_metadata
from tasks.exchange.error import ErrorKind
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor
from tasks.object_detection import DetectionInput, DetectionParameters, Detections
from tasks.vision.image import Image

LABELS = ("ship", "quay", "crane", "buoy", "ship")


def detected(
    *,
    picture: bytes = b"a picture",
    metadata: object = None,
    parameters: Mapping[str, object] | None = None,
    labels: Sequence[str] = LABELS,
    base_id: str | None = None,
    data: int = 1,
    pixels: Image | None = None,
    **more: object,
) -> InferenceEvent:
    """Return the event of a detector: `data` images, one for each input, with `labels` of falling scores."""
    image = pixels or Image(np.zeros((320, 640, 3), np.uint8))
    count = len(labels)
    found = Detections(
        labels=labels,
        scores=np.linspace(0.9, 0.5, count, dtype=np.float32),
        boxes=np.arange(4 * count, dtype=np.float32).reshape(count, 4),
    )
    own: dict[str, object] = dict(parameters or {})
    if metadata is not None:
        own[PARAMETER] = msgspec.json.encode(metadata).decode()
    inputs = tuple(
        BytesTensor(name=f"image-{place}", shape=(1,), elements=[BinaryElement(picture)], parameters=own)
        for place in range(data)
    )
    item = DetectionInput(image, DetectionParameters())
    answered = InferenceResult(
        outputs=(),
        batch_size=data,
        timings=Timings(),
        data=[Datum(input=place, index=0, item=item, prediction=found) for place in range(data)],
    )
    event = InferenceEvent(
        caller=RequestInfo(protocol="kserve-v2", request_id=str(uuid.uuid4()), base_id=base_id),
        model_name="detector",
        model_version="1",
        outcome=None,
        error="",
        batch_size=data,
        queue=0,
        total=5_000_000,
        timings=Timings(),
        metadata=[read_metadata(own[PARAMETER])] if PARAMETER in own else [],
        id=uuid.uuid4().hex,
        started=time.time_ns(),
        task_type="OBJECT_DETECTION",
        request=InferenceRequest(id="", model_name="detector", inputs=inputs),
        answered=answered,
    )
    return msgspec.structs.replace(event, **more)


def refused(kind: ErrorKind = ErrorKind.MODEL_NOT_FOUND, message: str = "Model 'x' is not known") -> InferenceEvent:
    """Return the event of a request that was refused before it was read."""
    return detected(
        model_name="x", model_version="", task_type="", request=None, answered=None, outcome=kind, error=message
    )
