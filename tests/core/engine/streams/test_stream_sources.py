"""Streams of outputs: every image is answered before the next, and the request is observed once."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from app.core.wire.bytes_elements import BinaryElement
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import BytesTensor
from tasks.object_detection import ObjectDetection
from tasks.task import TaskType
from tests.core.engine.engines import new_context
from tests.support.data.images import encode_image, rectangle
from tests.support.models.engines import engine_of, fake_sources
from tests.support.models.fake_models import detect, stand_in_metadata
from tests.support.models.scripted_model import EventRecorder, Gate, ScriptedModel, scripted_engine

ELEMENT = BinaryElement(encode_image(rectangle()))


def request(*counts: int, model: str = "detector", **parameters: object) -> InferenceRequest:
    inputs = [
        BytesTensor(name=name, shape=(count,), elements=[ELEMENT] * count, parameters=parameters)
        for name, count in zip("abc", counts, strict=False)
    ]
    return InferenceRequest(id="", model_name=model, inputs=tuple(inputs))


class GatedDetector:
    """Count calls, wait at a gate before each one, and fail at one of them."""

    def __init__(self, gate: Gate, failing: int = -1) -> None:
        self.sizes: list[int] = []
        self._gate = gate
        self._failing = failing

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        self._gate()
        self.sizes.append(len(inputs))
        if len(self.sizes) - 1 == self._failing:
            raise RuntimeError("tired")
        return detect(inputs)


def detector_engine(model: GatedDetector, observer: EventRecorder) -> Engine:
    def load(source: ModelSource) -> Servable:
        return Servable(ObjectDetection(), model, stand_in_metadata(TaskType.OBJECT_DETECTION), {})

    return engine_of(fake_sources("detector"), load, observer, workers=1)


def encode_output(response: InferenceResponse) -> tuple[str, str, str, int, dict[str, object]]:
    (output,) = response.outputs
    (prediction,) = output.predictions
    fields = (response.model_name, response.model_version, output.name, len(prediction.records()))
    return (*fields, dict(output.parameters))


def test_every_image_is_answered_before_the_next_is_run() -> None:
    gate, observer = Gate(), EventRecorder()
    model = GatedDetector(gate)
    engine = detector_engine(model, observer)

    async def run() -> None:
        inference_request = request(2, 1, metadata="m")
        outputs = engine.stream_outputs(
            new_context(), "detector", lambda: inference_request, encode_output, lambda _: None
        )
        async with aclosing(outputs):
            for number, name in enumerate("aab", 1):
                gate.open()
                assert await anext(outputs) == ("detector", "7", name, 1, {"metadata": "m"})
                assert model.sizes == [1] * number
            assert await anext(outputs, None) is None

    asyncio.run(run())
    (event,) = observer.events
    assert (event.outcome, event.batch_size, event.model_version) == (None, 3, "7")
    assert 0 < event.decode_ns < event.total
    assert event.decode_ns + event.model_ns + event.postprocess_ns <= event.total
    assert not engine.busy


def test_failure_comes_after_the_earlier_outputs() -> None:
    observer = EventRecorder()
    engine = detector_engine(GatedDetector(Gate(initial_passes=9), failing=1), observer)

    async def run() -> InferenceError:
        async with aclosing(
            engine.stream_outputs(new_context(), "", lambda: request(3), encode_output, lambda _: None)
        ) as outputs:
            assert await anext(outputs) == ("detector", "7", "a", 1, {})
            with pytest.raises(InferenceError, match="tired") as caught:
                await anext(outputs)
            return caught.value

    assert asyncio.run(run()).kind is ErrorKind.MODEL_FAILED
    (event,) = observer.events
    assert (event.outcome, event.batch_size) == (ErrorKind.MODEL_FAILED, 1)
    assert not engine.busy


def test_generated_text_is_streamed_without_empty_chunks() -> None:
    observer = EventRecorder()
    engine = scripted_engine(ScriptedModel("a", "", "b"), observer)

    async def run() -> list[str]:
        outputs = engine.stream_outputs(
            new_context(), "", lambda: request(2, model="speaker"), lambda _: "never", lambda chunk: chunk.text or None
        )
        async with aclosing(outputs):
            return [output async for output in outputs]

    assert asyncio.run(run()) == ["a", "b"] * 2
    assert [(event.outcome, event.batch_size) for event in observer.events] == [(None, 2)]
