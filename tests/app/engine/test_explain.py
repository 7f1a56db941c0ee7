"""One explanation: made beside the predictions and never before them, bounded, observed once."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.engine.description import ModelDescription
from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import BoundServable, Servable
from app.protocols.bytes_elements import BinaryElement
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse
from tasks.exchange.tensor import BytesTensor
from tasks.explanation.explanation import Explanation
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.task import TaskType
from tests.support.pictures import encoded, rectangle
from tests.support.speaker import Gate, Seen
from tests.support.stand_ins import LABELS, STAND_INS, detect, load_stand_in

CALLER = RequestInfo(protocol="test", request_id="abc")
NAMES = ("classifier", "detector", "segmenter", "teller", "failing")

Explanations = Sequence[Sequence[Sequence[Explanation]]]


class Slow:
    """A detector that waits at a gate with every batch of copies, but not with the picture itself."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.batches: list[int] = []
        self.niceness: set[int] = set()

    def __call__(self, inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        self.batches.append(len(inputs))
        if len(inputs) > 1:
            self.niceness.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            self.gate()
        return detect(inputs)


@contextmanager
def running(slow: Slow | None = None, seen: Seen | None = None, **limits: Any) -> Generator[Engine]:
    sources = [
        ModelSource(name=name, version="7", folder=Path(name), settings=ModelSettings(task_type=STAND_INS[name][0]))
        for name in NAMES
    ]
    settings = ModelSettings(task_type=TaskType.OBJECT_DETECTION)
    sources.append(ModelSource(name="slow", version="7", folder=Path("slow"), settings=settings))

    def load(source: ModelSource) -> Servable:
        if source.name != "slow":
            return load_stand_in(source)
        description = ModelDescription(
            task_type=TaskType.OBJECT_DETECTION,
            platform="stand-in",
            layout="none",
            labels=LABELS,
            inputs=(),
            outputs=(),
            facts=(),
        )
        return BoundServable(ObjectDetection(), slow or detect, description, {})

    registry = Registry(sources)
    for each in sources:
        registry.load(each, load)
    observers = [seen] if seen else []
    engine = Engine(Repository(registry, lambda: sources, load), observers, Limits(**limits), workers=1)
    try:
        yield engine
    finally:
        engine.close()


def request(model: str = "detector", count: int = 1, **parameters: object) -> InferenceRequest:
    picture = BinaryElement(encoded(rectangle()))
    tensor = BytesTensor(name="a", shape=(count,), elements=[picture] * count, parameters={"score_threshold": 0.5})
    parameters = {"samples": 48} | parameters
    return InferenceRequest(id="body-id", model_name=model, inputs=(tensor,), parameters=parameters)


def both(response: InferenceResponse, explanations: Explanations) -> tuple[InferenceResponse, Explanations]:
    return response, explanations


def explained(engine: Engine, decode: Callable[[], InferenceRequest]) -> tuple[InferenceResponse, Explanations]:
    return asyncio.run(engine.explain(CALLER, "detector", decode, both))


def test_an_answer_comes_with_its_reasons_and_is_observed_once_but_not_as_an_inference() -> None:
    seen = Seen()
    with running(seen=seen) as engine:
        response, explanations = explained(engine, lambda: request(count=2))
        answer = engine.infer(request(count=2))
        assert engine.statistics.of("detector", "7").inference_count == 0
        assert not engine.busy
    assert (response.id, response.model_name, response.model_version) == ("body-id", "detector", "7")
    records = [each.records() for each in response.outputs[0].predictions]
    assert records == [each.records() for each in answer.outputs[0].predictions]
    ((first, second),) = explanations
    for image, (found,) in zip(records, (first, second), strict=True):
        assert found.record == image[0]
        assert (found.label, found.score, found.samples, found.saliency.shape) == ("red", 0.9, 48, (48, 64))
    (event,) = seen.events
    assert (event.outcome, event.error, event.caller) == (None, "", CALLER)
    assert (event.explanation, event.batch_size, event.samples) == (True, 2, 96)
    assert 0 < event.timings.decode + event.timings.model + event.timings.refine <= event.total


@pytest.mark.parametrize(
    ("model", "parameters", "label"),
    [
        ("classifier", {}, "red"),
        ("classifier", {"label": "blue"}, "blue"),
        ("classifier", {"method": "occlusion"}, "red"),
        ("segmenter", {}, "red"),
    ],
)
def test_what_is_explained(model: str, parameters: dict[str, Any], label: str) -> None:
    with running() as engine:
        ((found,),) = explained(engine, lambda: request(model, **parameters))[1]
    assert [each.label for each in found] == [label]
    assert found[0].method == parameters.get("method", "rise")


def test_objects_of_another_class_are_not_explained() -> None:
    with running() as engine:
        assert explained(engine, lambda: request(label="border"))[1] == [[[]]]


def unreadable() -> InferenceRequest:
    raise invalid("Expected more", "inputs")


@pytest.mark.parametrize(
    ("decode", "kind", "message"),
    [
        (unreadable, ErrorKind.INVALID_REQUEST, "inputs: Expected more"),
        (lambda: 1 / 0, ErrorKind.INTERNAL, "abc"),
        (lambda: request("nobody"), ErrorKind.MODEL_NOT_FOUND, "not known"),
        (lambda: request("teller"), ErrorKind.UNSUPPORTED, "IMAGE_TEXT_TO_TEXT"),
        (lambda: request("failing"), ErrorKind.MODEL_FAILED, "The model failed"),
        (lambda: request("classifier", label="dog"), ErrorKind.INVALID_REQUEST, "parameters.label: .*'dog'"),
        (lambda: request(method="magic"), ErrorKind.INVALID_REQUEST, "parameters.method"),
        (lambda: request(samples=0), ErrorKind.INVALID_REQUEST, "parameters.samples"),
        (lambda: request(samples="9"), ErrorKind.INVALID_REQUEST, "parameters.samples"),
        (lambda: request(grid=1), ErrorKind.INVALID_REQUEST, "parameters.grid"),
        (lambda: request(grid=10**30), ErrorKind.INVALID_REQUEST, "parameters.grid"),
        (lambda: request(seed=-1), ErrorKind.INVALID_REQUEST, "parameters.seed"),
        (lambda: request(max_objects=0), ErrorKind.INVALID_REQUEST, "parameters.max_objects"),
        (lambda: request(max_seconds=0), ErrorKind.INVALID_REQUEST, "parameters.max_seconds"),
        (lambda: request(max_seconds=float("nan")), ErrorKind.INVALID_REQUEST, "parameters.max_seconds"),
        (lambda: request(samples=2001), ErrorKind.TOO_LARGE, "parameters.samples: Expected at most 2000 .* got 2001"),
        (lambda: request(samples=10**30), ErrorKind.TOO_LARGE, "parameters.samples"),
        (lambda: request(samples=1001, count=2), ErrorKind.TOO_LARGE, "2002 for 2 images"),
    ],
)
def test_refusals_name_the_field_and_are_observed_once(
    decode: Callable[[], InferenceRequest], kind: ErrorKind, message: str
) -> None:
    seen = Seen()
    with running(seen=seen) as engine:
        with pytest.raises(InferenceError, match=message) as caught:
            explained(engine, decode)
        assert not engine.busy
    assert caught.value.kind is kind
    assert [(event.outcome, event.error) for event in seen.events] == [(kind, str(caught.value))]


def test_occlusion_that_would_take_too_many_samples_names_the_grid() -> None:
    with running(max_explanation_samples=10) as engine, pytest.raises(InferenceError, match=r"parameters\.grid"):
        explained(engine, lambda: request(method="occlusion"))


def test_any_seed_will_do() -> None:
    with running() as engine:
        assert explained(engine, lambda: request(seed=10**30))[1][0][0][0].seed == 10**30


def test_images_share_the_samples_that_a_request_may_take() -> None:
    with running(max_explanation_samples=60) as engine:
        (images,) = explained(engine, lambda: request(count=3, samples=None))[1]
    assert [each[0].samples for each in images] == [20, 20, 20]


def test_time_that_runs_out_leaves_fewer_samples_for_every_image() -> None:
    with running(max_explanation_seconds=1e-9) as engine:
        (images,) = explained(engine, lambda: request(count=2, samples=500))[1]
    assert [each[0].samples for each in images] == [16, 16]
    with running() as engine:
        (images,) = explained(engine, lambda: request(samples=500, max_seconds=1e-9))[1]
    assert images[0][0].samples == 16


def test_predictions_go_on_while_explanations_are_held_up_and_the_one_too_many_is_refused() -> None:
    slow, seen = Slow(Gate()), Seen()

    async def run(engine: Engine) -> None:
        calls = [asyncio.create_task(engine.explain(CALLER, "slow", lambda: request("slow"), both)) for _ in range(4)]
        (refused,), waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        error = refused.exception()
        assert isinstance(error, InferenceError)
        assert error.kind is ErrorKind.OVERLOADED
        await asyncio.to_thread(slow.gate.await_step)
        assert engine.busy
        for _ in range(10):
            answer = await engine.exchange(CALLER, "slow", lambda: request("slow"), lambda response: response)
            assert len(answer.outputs[0].predictions) == 1
        for _ in range(9):
            slow.gate.open()
        await asyncio.gather(*waiting)
        await asyncio.sleep(0)
        assert not engine.busy

    with running(slow, seen) as engine:
        asyncio.run(run(engine))
    outcomes = [(event.explanation, event.outcome) for event in seen.events]
    assert outcomes == [(True, ErrorKind.OVERLOADED), *[(False, None)] * 10, *[(True, None)] * 3]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own")
def test_explanations_step_back_for_everything_else() -> None:
    slow = Slow(Gate(opened=3))
    with running(slow) as engine:
        explained(engine, lambda: request("slow"))
    assert slow.niceness == {min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)}


@pytest.mark.parametrize("end", ["the sender leaves", "the server stops", "the server will stop"])
def test_an_explanation_that_nobody_waits_for_ends_with_the_copies_in_hand(end: str) -> None:
    slow, seen = Slow(Gate()), Seen()

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(engine.explain(CALLER, "slow", lambda: request("slow", samples=480), both))
        await asyncio.to_thread(slow.gate.await_step)
        if end == "the sender leaves":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            slow.gate.open()
        else:
            (engine.close if end == "the server stops" else engine.hurry)()
            slow.gate.open()
            assert (await call)[1][0][0][0].samples == 16

    with running(slow, seen) as engine:
        asyncio.run(run(engine))
    engine_threads = [each for each in threading.enumerate() if each.name.startswith("explanation")]
    for each in engine_threads:
        each.join(60)
    assert slow.batches == [1, 16]
    assert [(event.outcome, event.samples) for event in seen.events] == [(None, 16)]
    assert not engine.busy


def test_a_stopping_engine_explains_no_more() -> None:
    seen = Seen()
    with running(seen=seen) as engine:
        engine.close()
        with pytest.raises(InferenceError, match="stopping") as caught:
            explained(engine, request)
    assert caught.value.kind is ErrorKind.MODEL_NOT_READY
    assert [event.outcome for event in seen.events] == [ErrorKind.MODEL_NOT_READY]


@pytest.mark.parametrize("end", ["the sender leaves", "the server stops"])
def test_an_explanation_that_was_never_begun_is_told_all_the_same(end: str) -> None:
    slow, seen = Slow(Gate()), Seen()

    async def run(engine: Engine) -> None:
        first = asyncio.create_task(engine.explain(CALLER, "slow", lambda: request("slow", samples=480), both))
        await asyncio.to_thread(slow.gate.await_step)
        second = asyncio.create_task(engine.explain(CALLER, "slow", lambda: request("slow"), both))
        await asyncio.sleep(0)
        if end == "the sender leaves":
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            engine.hurry()
        else:
            engine.close()
            with pytest.raises(InferenceError, match="stopping"):
                await second
        for _ in range(3):
            slow.gate.open()
        await first

    with running(slow, seen) as engine:
        asyncio.run(run(engine))
    expected = ErrorKind.CANCELLED if end == "the sender leaves" else ErrorKind.MODEL_NOT_READY
    assert [event.outcome for event in seen.events] == [expected, None]
    assert not engine.busy
