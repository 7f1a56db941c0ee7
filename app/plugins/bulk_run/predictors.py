"""Answer images by a model in this process or on a server, one row for each image, with errors as rows."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from app.clients.protocol import InferenceClientError, ServerUnavailableError
from app.core.engine.error_text import error_text
from app.core.settings.model import ModelError, ModelSource
from app.core.wire.bytes_elements import BinaryElement
from app.plugins.evaluation.answers import infer_task
from app.plugins.evaluation.collection import InferenceClient
from app.plugins.evaluation.dataset import Item
from app.plugins.recording.inference import RecordedImage, RecordedInference
from app.plugins.recording.sources import SourceImage
from metadata.request import MetadataEntry
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import SampleResult
from tasks.inference.tensor import BytesTensor
from tasks.vision.header import image_size
from tasks.vision.image import image_of

Predictor = Callable[[Sequence[SourceImage]], Sequence[RecordedInference]]
"""Returns a row for each image, or raises ServerUnavailableError if no image would be answered now.

Several threads call it.
"""
_Size = tuple[int, int]
_KINDS = {400: ErrorKind.INVALID_REQUEST, 413: ErrorKind.TOO_LARGE, 504: ErrorKind.DEADLINE_EXCEEDED}


class _Row(msgspec.Struct):
    """An image whose row is not complete yet."""

    image: SourceImage
    started: int = msgspec.field(default_factory=time.time_ns)
    data: bytes = b""
    error: InferenceError | None = None

    @classmethod
    def read(cls, image: SourceImage) -> "_Row":
        row = cls(image)
        try:
            row.data = image.read()
        except OSError as error:
            row.error = InferenceError(ErrorKind.INVALID_REQUEST, str(error))
        return row

    def finished(
        self, records: Sequence[Mapping[str, object]] | None, size: _Size | None, **columns: Any
    ) -> RecordedInference:
        """Return the row with an answer, or with the error. `size` is the width and height of the upright image."""
        return RecordedInference(
            id=f"{self.image.digest}-0-0",
            started=self.started // 1000,
            duration=max(0, time.time_ns() - self.started) // 1000,
            metadata=(MetadataEntry("file", "str", self.image.name), *self.image.metadata),
            records=None if self.error else records,
            image=size
            and RecordedImage(
                digest=hashlib.sha256(self.data).hexdigest(), width=size[0], height=size[1], size=len(self.data)
            ),
            error=self.error.kind.value if self.error else None,
            message=str(self.error) if self.error else "",
            **columns,
        )


class LocalPredictor:
    """A model in this process.

    Raise InferenceError when its task has no parameter of a name in `parameters`. Raise ModelError when it cannot be
    loaded, or does not take images.
    """

    def __init__(self, source: ModelSource, parameters: Mapping[str, object], limits: Limits) -> None:
        from app.core.assembly.models import load

        self._servable = load(source)
        description = self._servable.description
        if description.takes not in ("image", "question"):
            task = description.task_type
            raise ModelError(f"{source.name}: Expected a model of images; one of {task} takes a {description.takes}")
        self._servable.check_parameters(parameters)
        self._parameters, self._limits, self._name = parameters, limits, source.name
        self._columns = {
            "protocol": "run",
            "model": source.name,
            "version": source.version,
            "task_type": str(description.task_type),
            "parameters": parameters,
        }

    def __call__(self, images: Sequence[SourceImage]) -> Sequence[RecordedInference]:
        """Answer images by one call of the model. If the call fails, answer each image on its own."""
        rows = [_Row.read(image) for image in images]
        samples = self._answered([row for row in rows if row.error is None])
        return [self._finished(row, None if row.error else next(samples)) for row in rows]

    def _answered(self, rows: Sequence[_Row]) -> Iterator[SampleResult | None]:
        try:
            yield from self._predict(rows) if rows else ()
        except Exception as error:  # noqa: BLE001  no image may stop a run
            if len(rows) > 1:
                for row in rows:
                    yield from self._answered([row])
                return
            known = isinstance(error, InferenceError)
            rows[0].error = error if known else InferenceError(ErrorKind.INTERNAL, error_text(error))
            yield None

    def _predict(self, rows: Sequence[_Row]) -> Sequence[SampleResult]:
        tensors = tuple(
            BytesTensor(name=f"image-{index}", shape=(1,), elements=[BinaryElement(row.data)])
            for index, row in enumerate(rows)
        )
        request = InferenceRequest(id="run", model_name=self._name, inputs=tensors, parameters=self._parameters)
        limits = msgspec.structs.replace(
            self._limits,
            max_inputs=max(self._limits.max_inputs, len(rows)),
            max_request_pixels=max(self._limits.max_request_pixels, len(rows) * self._limits.max_pixels),
        )
        return self._servable.predict(request, limits).samples

    def _finished(self, row: _Row, sample: SampleResult | None) -> RecordedInference:
        image = image_of(sample.item) if sample else None
        records = msgspec.to_builtins(sample.prediction.records(), enc_hook=str) if sample else None
        return row.finished(records, (image.width, image.height) if image else None, **self._columns)


def served_predictor(client: InferenceClient, protocol: str, model: str, parameters: Mapping[str, object]) -> Predictor:
    """Return the predictor of a model on a server, which one request asks for each image."""
    columns = {"protocol": protocol, "model": model, "parameters": parameters}

    def answer(row: _Row) -> RecordedInference:
        records: Sequence[Mapping[str, object]] = ()
        try:
            if row.error is None:
                records = client(Item(id=row.image.name, image=Path(row.image.name)), row.data)
        except ServerUnavailableError:
            raise
        except InferenceClientError as error:
            row.error = InferenceError(_KINDS.get(error.status, ErrorKind.MODEL_FAILED), str(error))
        size, task = None, ""
        # The server may read images that are not readable here, and have tasks without metrics.
        with suppress(InferenceError):
            size = image_size(row.data, allow_avif_jpeg2000=True)
        with suppress(ValueError):
            task = str(infer_task(records) or "")
        return row.finished(records, size, task_type=task, **columns)

    return lambda images: [answer(_Row.read(image)) for image in images]
