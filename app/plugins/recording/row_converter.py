"""Convert inference events into database rows."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, cast

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.engine.request_context import RequestContext
from app.plugins.recording.images import ImageFile
from app.plugins.recording.inference import RecordedImage, RecordedInference, Selection
from app.plugins.recording.stores.rows import Rows, to_rows
from metadata.request import METADATA_PARAMETER, InputMetadata, MetadataEntry
from tasks.inference.error import InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import SampleResult
from tasks.inference.tensor import BytesTensor
from tasks.tensor_inference import TensorsInput
from tasks.vision.image import image_of

REDACTED = "[redacted]"
"""Replacement for a removed value."""

_MAX_DEPTH = 100


class Redaction:
    """Replace the values of case-insensitive keys of metadata and parameters, at any depth, and inside records."""

    def __init__(self, keys: Collection[str]) -> None:
        self._keys = frozenset(key.casefold() for key in keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def redacts(self, key: str) -> bool:
        return key.casefold() in self._keys

    def value(self, value: object, depth: int = _MAX_DEPTH) -> object:
        """Return `value` with the values of the keys replaced, also in nested objects and lists.

        Objects and lists nested deeper than `depth` are replaced completely, because they are not searched.
        """
        if not self._keys:
            return value
        if isinstance(value, msgspec.Raw | msgspec.Struct):
            value = msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
        if isinstance(value, Mapping | list | tuple) and depth == 0:
            return REDACTED
        if isinstance(value, Mapping):
            return {
                key: REDACTED if self.redacts(str(key)) else self.value(inner, depth - 1)
                for key, inner in cast("Mapping[object, object]", value).items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item, depth - 1) for item in cast("Sequence[object]", value)]
        return value

    def entries(self, entries: Sequence[MetadataEntry]) -> Sequence[MetadataEntry]:
        """Return `entries` with the values of the keys replaced by a str, also inside nested values."""
        return [
            MetadataEntry(entry.key, "str", REDACTED)
            if self.redacts(entry.key)
            else MetadataEntry(entry.key, entry.type, self.value(entry.value))  # pyright: ignore[reportArgumentType]
            for entry in entries
        ]

    def message(self, message: str) -> str:
        """Return `message`, or the replacement if it names a key: it may then quote the value."""
        folded = message.casefold()
        return REDACTED if any(key in folded for key in self._keys) else message


_ALL = Selection(probability=1.0)


class PendingRequest(msgspec.Struct, kw_only=True):
    """A request that waits to be written: one row for each sample with a result, or a single row if there is none."""

    rows: Sequence[Rows]  # at least one
    images: Sequence[ImageFile]  # the image files to store with the rows
    recorded: "Future[None] | None" = None  # completes when the request is written; None when no client waits for it
    done: bool = False  # whether it was written, or has failed
    size: int = 0  # the approximate size in bytes

    def __post_init__(self) -> None:
        self.size = sum(row.size for row in self.rows) + sum(len(image.data) for image in self.images)

    def complete(self, error: InferenceError | None) -> None:
        """Report that the request was written, or failed with `error`. The waiting client may have disconnected."""
        self.done = True
        if self.recorded is None:
            return
        with suppress(InvalidStateError):
            if error is None:
                self.recorded.set_result(None)
            else:
                self.recorded.set_exception(error)


class RowConverter:
    """Convert events into rows, and with `keep_images` into images to store. Several threads may call it at once."""

    def __init__(self, redaction: Redaction, *, keep_images: bool) -> None:
        self._redaction = redaction
        self._keep_images = keep_images

    def __call__(self, event: RequestContext, selection: Selection = _ALL) -> PendingRequest:
        """Return the rows and images of `event`, which no client waits for yet."""
        request = event.request
        if request is None or event.result is None or not event.result.samples:
            records = None if event.outcome or event.result is None else ()
            shared: Mapping[str, object] = request.parameters if request else {}
            inference = self._convert(event, selection, shared, event.metadata.of(), records=records)
            return PendingRequest(rows=[to_rows(inference)], images=[])
        images: dict[str, ImageFile] = {}
        rows: list[Rows] = []
        for sample in event.result.samples:
            # For a tensor model, one sample consists of all inputs.
            inputs = range(len(request.inputs)) if isinstance(sample.item, TensorsInput) else (sample.input,)
            parameters = {**request.parameters}
            for index in inputs:
                parameters |= request.parameters_of(index)
            inference = self._convert(
                event,
                selection,
                parameters,
                event.metadata.of(inputs),
                input=sample.input,
                datum=sample.index,
                records=self._redaction.value(sample.prediction.records()),
                image=self._read_image(request, sample, images),
            )
            rows.append(to_rows(inference, {} if self._redaction.redacts("label") else None))
        return PendingRequest(rows=rows, images=list(images.values()))

    def _convert(
        self,
        event: RequestContext,
        selection: Selection,
        parameters: Mapping[str, object],
        metadata: Iterable[InputMetadata],
        *,
        input: int = 0,  # noqa: A002
        datum: int = 0,
        **answer: Any,
    ) -> RecordedInference:
        """Return an inference with an `answer`, whose records may be objects."""
        entries: Sequence[MetadataEntry] = [entry for found in metadata for entry in found.entries]
        message = event.error
        parameters = {key: value for key, value in parameters.items() if key != METADATA_PARAMETER}
        if self._redaction:
            parameters = cast("Mapping[str, object]", self._redaction.value(parameters))
            entries, message = self._redaction.entries(entries), self._redaction.message(message)
        return RecordedInference(
            id=f"{event.id}-{input}-{datum}",
            base_id=event.base_id,
            request_id=event.request_id,
            input=input,
            datum=datum,
            protocol=event.protocol,
            model=event.model_name,
            version=event.model_version,
            task_type=event.task_type,
            started=event.timestamp // 1000,
            duration=event.total // 1000,
            parameters=parameters,
            metadata=entries,
            error=event.outcome.value if event.outcome else None,
            message=message,
            explanation=event.explanation,
            reason=selection.reason,
            probability=selection.probability,
            **answer,
        )

    def _read_image(
        self, request: InferenceRequest, sample: SampleResult, images: dict[str, ImageFile]
    ) -> RecordedImage | None:
        """Return the image as it was sent, if the sample is one. Add it to `images` if images are kept."""
        decoded = image_of(sample.item)
        if decoded is None:
            return None
        tensor = request.inputs[sample.input]
        if isinstance(tensor, BytesTensor):
            data = tensor.elements[sample.index].binary()
            digest, size = hashlib.sha256(data).hexdigest(), len(data)
        else:
            pixels = np.ascontiguousarray(decoded.pixels)
            hashed = hashlib.sha256(f"{decoded.width}x{decoded.height}\n".encode())
            hashed.update(pixels.data)
            digest, size = hashed.hexdigest(), pixels.nbytes
            data = _png(pixels) if self._keep_images else b""
        if self._keep_images:
            images[digest] = ImageFile(digest, data)
        return RecordedImage(
            digest=digest, width=decoded.width, height=decoded.height, size=size, kept=self._keep_images
        )


def _png(pixels: NDArray[np.uint8]) -> bytes:
    return cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1].tobytes()
