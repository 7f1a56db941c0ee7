"""Convert inference events into database rows."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import cv2
import msgspec
import numpy as np

from app.engine.inference_result import SampleResult
from app.engine.request_context import RequestContext
from app.recording.images import ImageFile
from app.recording.pending import PendingRequest
from app.recording.redaction import Redaction
from app.recording.stores.rows import InferenceRow, LabelRow, Rows, label_rows, metadata_rows, position, to_indexed_text
from metadata.entry import METADATA_PARAMETER, Metadata, MetadataEntry, metadata_of_inputs
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor
from tasks.tensor_inference import TensorsInput
from tasks.vision.image import Image, image_of


class _ReceivedImage(NamedTuple):
    """A received image: its file, its size in bytes, and its upright width and height in pixels."""

    file: ImageFile
    size: int
    width: int
    height: int


_NO_PARAMETERS: Mapping[str, object] = {}


class RowConverter:
    """Convert events into rows. Several threads may call it at once.

    Args:
        redaction: the values to leave out.
        keep_images: whether to store the images, and not only their digests.
    """

    def __init__(self, redaction: Redaction, *, keep_images: bool) -> None:
        self._redaction = redaction
        self._keep_images = keep_images

    def __call__(self, event: RequestContext) -> PendingRequest:
        """Return the rows and images of `event`, which no client waits for yet."""
        samples = event.result.samples if event.result else ()
        images: dict[str, ImageFile] = {}
        if not samples:
            return PendingRequest(rows=[self._convert_request(event)], images=())
        metadata_by_input: Mapping[int, Metadata] = (
            metadata_of_inputs(event.request, event.metadata) if event.request else {}
        )
        rows = [self._convert_sample(event, sample, metadata_by_input, images) for sample in samples]
        return PendingRequest(rows=rows, images=list(images.values()))

    def _convert_request(self, event: RequestContext) -> Rows:
        records = None if event.outcome or event.result is None else "[]"
        entries = [entry for metadata in event.metadata for entry in metadata.entries]
        request_parameters = event.request.parameters if event.request else _NO_PARAMETERS
        parameters = {key: value for key, value in request_parameters.items() if key != METADATA_PARAMETER}
        return self._build_rows(event, 0, 0, parameters, entries, records)

    def _convert_sample(
        self,
        event: RequestContext,
        sample: SampleResult,
        metadata_by_input: Mapping[int, Metadata],
        images: dict[str, ImageFile],
    ) -> Rows:
        request = cast("InferenceRequest", event.request)
        # For a tensor model, one sample consists of all inputs.
        inputs = range(len(request.inputs)) if isinstance(sample.item, TensorsInput) else (sample.input,)
        parameters: dict[str, object] = {**request.parameters}
        for index in inputs:
            parameters |= request.parameters_of(index)
        parameters.pop(METADATA_PARAMETER, None)
        records: Sequence[object] = sample.prediction.records()
        labels = () if self._redaction.redacts("label") else label_rows(records)
        if self._redaction:
            records = cast("Sequence[object]", self._redaction.value(records))
        image = image_of(sample.item)
        received = None if image is None else self._read_image(request, sample, image)
        if received is not None and self._keep_images:
            images[received.file.digest] = received.file
        entries = _unique_entries([metadata_by_input[index] for index in inputs if index in metadata_by_input])
        return self._build_rows(
            event, sample.input, sample.index, parameters, entries, _json(records), labels, received
        )

    def _build_rows(
        self,
        event: RequestContext,
        input_index: int,
        sample_index: int,
        parameters: Mapping[str, object],
        entries: Sequence[MetadataEntry],
        records: str | None,
        labels: Sequence[LabelRow] = (),
        received: _ReceivedImage | None = None,
    ) -> Rows:
        message = event.error
        if self._redaction:
            parameters = cast("Mapping[str, object]", self._redaction.value(parameters))
            entries, message = self._redaction.entries(entries), self._redaction.message(message)
        latitude, longitude = position(entries) if entries else (None, None)
        row = InferenceRow(
            id=f"{event.id}-{input_index}-{sample_index}",
            base_id=None if event.base_id is None else to_indexed_text(event.base_id),
            request_id=to_indexed_text(event.request_id),
            input=input_index,
            datum=sample_index,
            protocol=event.protocol,
            model=to_indexed_text(event.model_name),
            version=to_indexed_text(event.model_version),
            task_type=event.task_type,
            started=event.timestamp // 1000,
            duration=event.total // 1000,
            parameters=_json(parameters) if parameters else "{}",
            metadata=_json(entries) if entries else "[]",
            records=records,
            image_digest=received.file.digest if received else None,
            image_width=received.width if received else None,
            image_height=received.height if received else None,
            image_size=received.size if received else None,
            image_kept=received is not None and self._keep_images,
            error=event.outcome.value if event.outcome else None,
            message=to_indexed_text(message, len(message)),
            explanation=event.explanation,
            latitude=latitude,
            longitude=longitude,
        )
        return Rows(inference=row, metadata=metadata_rows(entries), labels=labels)

    def _read_image(self, request: InferenceRequest, sample: SampleResult, decoded: Image) -> _ReceivedImage:
        """Return the image as it was sent. Its data is empty unless images are kept."""
        tensor = request.inputs[sample.input]
        if isinstance(tensor, BytesTensor):
            data = tensor.elements[sample.index].binary()
            file = ImageFile(hashlib.sha256(data).hexdigest(), data if self._keep_images else b"")
            return _ReceivedImage(file, len(data), decoded.width, decoded.height)
        pixels = np.ascontiguousarray(decoded.pixels)
        digest = hashlib.sha256(f"{decoded.width}x{decoded.height}\n".encode())
        digest.update(pixels.data)
        file = ImageFile(digest.hexdigest(), _png(decoded) if self._keep_images else b"")
        return _ReceivedImage(file, pixels.nbytes, decoded.width, decoded.height)


def _unique_entries(metadata: Sequence[Metadata]) -> Sequence[MetadataEntry]:
    """Return the entries of all `metadata`. Metadata that several inputs share counts once."""
    unique = {id(item): item for item in metadata}
    return [entry for item in unique.values() for entry in item.entries]


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _png(image: Image) -> bytes:
    encoded, data = cv2.imencode(".png", cv2.cvtColor(image.pixels, cv2.COLOR_RGB2BGR))
    assert encoded  # noqa: S101  OpenCV can always encode 8-bit pixels
    return data.tobytes()
