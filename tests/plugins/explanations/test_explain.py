"""Explanations: lower priority than predictions, bounded, and observed once."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable

import pytest

from app.core.engine.engine import Engine
from app.plugins.explanations.request import explain_request
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tests.core.engine.engines import new_context
from tests.plugins.explanations.engines import SlowDetector, explain, explain_slowly, request, running
from tests.support.models.scripted_model import EventRecorder, Gate
from tests.support.rejection import rejects


def test_explanation_has_predictions_and_is_observed_once_but_not_as_inference() -> None:
    observer = EventRecorder()
    with running(observer=observer) as engine:
        response, explanations = explain(engine, lambda: request(count=2))
        answer = engine.registry.find("detector").ready_servable().predict(request(count=2), engine.limits)
        assert not engine.busy
    assert (response.id, response.model_name, response.model_version) == ("body-id", "detector", "7")
    records = [prediction.records() for prediction in response.outputs[0].predictions]
    assert records == [prediction.records() for prediction in answer.outputs[0].predictions]
    for image, (explanation,) in zip(records, explanations, strict=True):
        assert explanation.record == image[0]
        assert (explanation.label, explanation.score, explanation.samples) == ("red", 0.9, 48)
        assert explanation.saliency.shape == (48, 64)
    (event,) = observer.events
    assert (event.outcome, event.error, event.request_id) == (None, "", new_context().request_id)
    assert (event.explanation, event.batch_size, event.explanation_samples) == (True, 2, 96)
    assert 0 < event.decode_ns + event.model_ns + event.postprocess_ns <= event.total


@pytest.mark.parametrize(
    ("decode", "kind", "message"),
    [
        (lambda: request("teller"), ErrorKind.UNSUPPORTED, "IMAGE_TEXT_TO_TEXT"),
        (lambda: request("failing"), ErrorKind.MODEL_FAILED, "The model failed"),
        (lambda: request(samples=0), ErrorKind.INVALID_REQUEST, "parameters.samples"),
        (lambda: request(grid=1), ErrorKind.INVALID_REQUEST, "parameters.grid"),
        (lambda: request(seed=-1), ErrorKind.INVALID_REQUEST, "parameters.seed"),
        (lambda: request(max_objects=0), ErrorKind.INVALID_REQUEST, "parameters.max_objects"),
        (lambda: request(max_seconds=0), ErrorKind.INVALID_REQUEST, "parameters.max_seconds"),
        (lambda: request(max_seconds=float("nan")), ErrorKind.INVALID_REQUEST, "parameters.max_seconds"),
        (lambda: request(samples=2001), ErrorKind.TOO_LARGE, "parameters.samples: Expected at most 2000 .* got 2001"),
        (lambda: request(samples=1001, count=2), ErrorKind.TOO_LARGE, "2002 for 2 images"),
    ],
)
def test_rejected_explanation_names_the_field_and_is_observed_once(
    decode: Callable[[], InferenceRequest], kind: ErrorKind, message: str
) -> None:
    observer = EventRecorder()
    with running(observer=observer) as engine:
        with pytest.raises(InferenceError, match=message) as caught:
            explain(engine, decode)
        assert not engine.busy
    assert caught.value.kind is kind
    assert [(event.outcome, event.error) for event in observer.events] == [(kind, str(caught.value))]


def test_images_of_a_request_share_the_sample_limit() -> None:
    with running(max_explanation_samples=60) as engine:
        images = explain(engine, lambda: request(count=3, samples=None, seed=10**30))[1]
        assert [(objects[0].samples, objects[0].seed) for objects in images] == [(20, 10**30)] * 3
        with pytest.raises(InferenceError, match=r"parameters\.grid"):
            explain(engine, lambda: request(method="occlusion"))
        # Objects of another class are not explained.
        assert explain(engine, lambda: request(label="border"))[1] == [[]]


def test_time_limit_reduces_the_samples_of_every_image() -> None:
    with running(max_explanation_seconds=1e-9) as engine:
        images = explain(engine, lambda: request(count=2, samples=500))[1]
    assert [objects[0].samples for objects in images] == [16, 16]
    with running() as engine:
        images = explain(engine, lambda: request(samples=500, max_seconds=1e-9))[1]
        assert images[0][0].samples == 16
        # The time until the deadline of the request counts too.
        servable = engine.registry.find("detector").ready_servable()
        explained = explain_request(servable, request(samples=500), engine.limits, lambda: True, 1e-9)
    assert explained.samples == 16


def test_blocked_explanations_do_not_block_predictions_and_excess_is_rejected() -> None:
    gate, observer = Gate(), EventRecorder()
    model = SlowDetector(gate)

    async def run(engine: Engine) -> None:
        calls = [asyncio.create_task(explain_slowly(engine)) for _ in range(4)]
        (first_done,), waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        error = first_done.exception()
        assert isinstance(error, InferenceError)
        assert error.kind is ErrorKind.OVERLOADED
        assert "3 explanations in flight" in error.message
        assert (error.retry_after or 0) >= 1
        await asyncio.to_thread(gate.wait_for_arrival)
        assert engine.busy
        for _ in range(10):
            answer = await engine.handle(new_context(), "slow", lambda: request("slow"), lambda response: response)
            assert len(answer.outputs[0].predictions) == 1
        for _ in range(9):
            gate.open()
        await asyncio.gather(*waiting)
        await asyncio.sleep(0)
        assert not engine.busy

    with running(model, observer) as engine:
        asyncio.run(run(engine))
    outcomes = [(event.explanation, event.outcome) for event in observer.events]
    assert outcomes == [(True, ErrorKind.OVERLOADED), *[(False, None)] * 10, *[(True, None)] * 3]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own")
def test_explanation_threads_have_a_lower_priority() -> None:
    model = SlowDetector(Gate(initial_passes=3))
    with running(model) as engine:
        explain(engine, lambda: request("slow"))
    assert model.niceness == {min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)}


@pytest.mark.parametrize("end", ["disconnect", "close", "drain"])
def test_abandoned_explanation_ends_after_the_current_batch(end: str) -> None:
    gate, observer = Gate(), EventRecorder()
    model = SlowDetector(gate)
    earlier_threads = set(threading.enumerate())

    async def run(engine: Engine) -> None:
        call = asyncio.create_task(explain_slowly(engine, 480))
        await asyncio.to_thread(gate.wait_for_arrival)
        if end == "disconnect":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            gate.open()
        else:
            (engine.close if end == "close" else engine.start_drain)()
            gate.open()
            assert (await call)[1][0][0].samples == 16

    with running(model, observer) as engine:
        asyncio.run(run(engine))
    for thread in set(threading.enumerate()) - earlier_threads:
        if thread.name.startswith("explanation"):
            thread.join(60)
    assert model.batches == [1, 16]
    assert [(event.outcome, event.explanation_samples) for event in observer.events] == [(None, 16)]
    assert not engine.busy


def test_queued_explanation_is_dropped_when_the_engine_closes() -> None:
    gate, observer = Gate(), EventRecorder()

    async def run(engine: Engine) -> None:
        first = asyncio.create_task(explain_slowly(engine, 480))
        await asyncio.to_thread(gate.wait_for_arrival)
        second = asyncio.create_task(explain_slowly(engine))
        await asyncio.sleep(0)
        engine.close()
        with rejects("stopping", kind=ErrorKind.MODEL_NOT_READY):
            await second
        for _ in range(3):
            gate.open()
        await first

    with running(SlowDetector(gate), observer) as engine:
        asyncio.run(run(engine))
    assert [event.outcome for event in observer.events] == [ErrorKind.MODEL_NOT_READY, None]
    assert not engine.busy
