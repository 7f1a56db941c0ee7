"""Convert inference events into database rows."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import cv2
import msgspec
import numpy as np

from app.engine.answered import Datum
from app.engine.events import InferenceEvent
from app.recording.images import ImageFile
from app.recording.redaction import Redaction
from app.recording.rows import InferenceRow, LabelRow, Rows, indexed, label_rows, metadata_rows, position
from metadata.entry import PARAMETER, Metadata, MetadataEntry, metadata_of_inputs
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor
from tasks.tensor_inference import TensorsInput
from tasks.vision.image import Image

__all__ = ("Conversion", "Converted")


class _Sent(NamedTuple):
    """A received image: its file, its size in bytes, and its upright width and height in pixels."""

    file: ImageFile
    size: int
    width: int
    height: int


_NONE: Mapping[str, object] = {}


class Converted(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rows of one request: one for each answered datum, or a single row when none was answered.

    Attributes:
        rows: at least one.
        images: the image files to store with the rows.
    """

    rows: Sequence[Rows]
    images: Sequence[ImageFile]

    @property
    def size(self) -> int:
        """Return the approximate size in bytes."""
        return sum(row.size for row in self.rows) + sum(len(image.data) for image in self.images)


class Conversion:
    """Convert events into rows. Several threads may call it at once.

    Args:
        redaction: the values to leave out.
        keep_images: whether to store the images, and not only their digests.
    """

    def __init__(self, redaction: Redaction, *, keep_images: bool) -> None:
        self._redaction = redaction
        self._keep_images = keep_images

    def __call__(self, event: InferenceEvent) -> Converted:
        """Return the rows and images of `event`."""
        data = event.answered.data if event.answered else ()
        images: dict[str, ImageFile] = {}
        if not data:
            return Converted(rows=[self._unanswered(event)], images=())
        by_input: Mapping[int, Metadata] = metadata_of_inputs(event.request, event.metadata) if event.request else {}
        rows = [self._answered(event, datum, by_input, images) for datum in data]
        return Converted(rows=rows, images=list(images.values()))

    def _unanswered(self, event: InferenceEvent) -> Rows:
        records = None if event.outcome or event.answered is None else "[]"
        entries = [entry for metadata in event.metadata for entry in metadata.entries]
        given = event.request.parameters if event.request else _NONE
        parameters = {key: value for key, value in given.items() if key != PARAMETER}
        return self._rows(event, 0, 0, parameters, entries, records)

    def _answered(
        self, event: InferenceEvent, datum: Datum, by_input: Mapping[int, Metadata], images: dict[str, ImageFile]
    ) -> Rows:
        request = cast("InferenceRequest", event.request)
        # For a tensor model, one datum consists of all inputs.
        inputs = range(len(request.inputs)) if isinstance(datum.item, TensorsInput) else (datum.input,)
        parameters: dict[str, object] = {**request.parameters}
        for index in inputs:
            parameters |= request.parameters_of(index)
        parameters.pop(PARAMETER, None)
        records: Sequence[object] = datum.prediction.records()
        labels = () if self._redaction.hides("label") else label_rows(records)
        if self._redaction:
            records = cast("Sequence[object]", self._redaction.value(records))
        image = getattr(datum.item, "image", None)
        sent = self._sent(request, datum, image) if isinstance(image, Image) else None
        if sent is not None and self._keep_images:
            images[sent.file.digest] = sent.file
        entries = _entries([by_input[index] for index in inputs if index in by_input])
        return self._rows(event, datum.input, datum.index, parameters, entries, _json(records), labels, sent)

    def _rows(
        self,
        event: InferenceEvent,
        place: int,
        index: int,
        parameters: Mapping[str, object],
        entries: Sequence[MetadataEntry],
        records: str | None,
        labels: Sequence[LabelRow] = (),
        sent: _Sent | None = None,
    ) -> Rows:
        message = event.error
        if self._redaction:
            parameters = cast("Mapping[str, object]", self._redaction.value(parameters))
            entries, message = self._redaction.entries(entries), self._redaction.message(message)
        caller = event.caller
        latitude, longitude = position(entries) if entries else (None, None)
        row = InferenceRow(
            id=f"{event.id}-{place}-{index}",
            base_id=None if caller.base_id is None else indexed(caller.base_id),
            request_id=indexed(caller.request_id),
            input=place,
            datum=index,
            protocol=caller.protocol,
            model=indexed(event.model_name),
            version=indexed(event.model_version),
            task_type=event.task_type,
            started=event.started // 1000,
            duration=event.total // 1000,
            parameters=_json(parameters) if parameters else "{}",
            metadata=_json(entries) if entries else "[]",
            records=records,
            image_digest=sent.file.digest if sent else None,
            image_width=sent.width if sent else None,
            image_height=sent.height if sent else None,
            image_size=sent.size if sent else None,
            image_kept=sent is not None and self._keep_images,
            error=event.outcome.value if event.outcome else None,
            message=indexed(message, len(message)),
            explanation=event.explanation,
            latitude=latitude,
            longitude=longitude,
        )
        return Rows(inference=row, metadata=metadata_rows(entries), labels=labels)

    def _sent(self, request: InferenceRequest, datum: Datum, image: Image) -> _Sent:
        """Return the image as it was sent. Its data is empty unless images are kept."""
        tensor = request.inputs[datum.input]
        if isinstance(tensor, BytesTensor):
            data = tensor.elements[datum.index].binary()
            file = ImageFile(hashlib.sha256(data).hexdigest(), data if self._keep_images else b"")
            return _Sent(file, len(data), image.width, image.height)
        pixels = np.ascontiguousarray(image.pixels)
        digest = hashlib.sha256(f"{image.width}x{image.height}\n".encode())
        digest.update(pixels.data)
        file = ImageFile(digest.hexdigest(), _png(image) if self._keep_images else b"")
        return _Sent(file, pixels.nbytes, image.width, image.height)


def _entries(metadata: Sequence[Metadata]) -> Sequence[MetadataEntry]:
    """Return the entries of all `metadata`. Metadata that several inputs share counts once."""
    unique = {id(item): item for item in metadata}
    return [entry for item in unique.values() for entry in item.entries]


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _png(image: Image) -> bytes:
    encoded, data = cv2.imencode(".png", cv2.cvtColor(image.pixels, cv2.COLOR_RGB2BGR))
    assert encoded  # noqa: S101  OpenCV can always encode 8-bit pixels
    return data.tobytes()
