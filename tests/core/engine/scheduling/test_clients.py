"""Limits of requests in flight for one client."""

import asyncio
from contextlib import aclosing

import pytest

from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import Admission, QueueLimits
from app.core.wire.bytes_elements import BinaryElement
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import BytesTensor
from tests.support.data.images import encode_image, rectangle
from tests.support.models.scripted_model import EventRecorder, Gate, ScriptedModel, scripted_engine
from tests.support.polling import wait_until_async


def admission_of(max_each_client: int | None, max_waiting: int = 100) -> Admission:
    return Admission(
        2,
        QueueLimits(max_each_client=max_each_client, max_waiting=max_waiting),
        model_limit=lambda _: None,
        multi_model=lambda: False,
        expected_wait=lambda _: 0,
    )


def request_info(client: str = "", address: str = "") -> RequestContext:
    return RequestContext(protocol="test", request_id="1", response_headers={}, client=client, address=address)


def admitted_requests(admission: Admission, info: RequestContext) -> int:
    """Return how many of twenty requests are admitted before one is refused."""
    for count in range(20):
        try:
            admission.acquire(info, "a", None)
        except InferenceError:
            return count
    return 20


@pytest.mark.parametrize(
    ("info", "client_name"),
    [
        (request_info(address="10.0.0.1"), "your address"),
        (request_info("camera", "10.0.0.1"), "the key 'camera'"),
    ],
)
def test_client_over_its_limit_is_rejected(info: RequestContext, client_name: str) -> None:
    admission = admission_of(3)
    assert admitted_requests(admission, info) == 3
    with pytest.raises(InferenceError, match=f"has 3 requests or streams of {client_name} in flight") as caught:
        admission.acquire(info, "a", None)
    assert caught.value.kind is ErrorKind.OVERLOADED
    assert caught.value.retry_after == 1
    assert admission.in_flight == 3
    admission.release("a", info)
    assert admitted_requests(admission, info) == 1


def test_clients_are_counted_by_key_or_else_by_address() -> None:
    admission = admission_of(3)
    assert admitted_requests(admission, request_info("one", "10.0.0.1")) == 3
    assert admitted_requests(admission, request_info("two", "10.0.0.1")) == 3
    assert admitted_requests(admission, request_info("one", "10.0.0.2")) == 0
    assert admitted_requests(admission, request_info(address="10.0.0.1")) == 3


def test_unknown_client_and_client_without_limit_are_not_rejected() -> None:
    assert admitted_requests(admission_of(1), request_info()) == 20
    assert admitted_requests(admission_of(None), request_info("one")) == 20


def test_request_rejected_for_another_reason_does_not_count() -> None:
    admission, info = admission_of(5, max_waiting=1), request_info("one")
    assert admitted_requests(admission, info) == 3
    for _ in range(10):
        assert admitted_requests(admission, info) == 0
    admission.release("a", info)
    assert admitted_requests(admission, info) == 1


def test_open_stream_and_its_requests_count_separately() -> None:
    admission, info = admission_of(2), request_info("one")
    admission.clients.acquire(info)
    assert admitted_requests(admission, info) == 1
    admission.release("a", info)
    admission.clients.release(info)
    assert admitted_requests(admission, info) == 2


def request() -> InferenceRequest:
    tensor = BytesTensor(name="a", shape=(1,), elements=[BinaryElement(encode_image(rectangle()))])
    return InferenceRequest(id="", model_name="speaker", inputs=(tensor,))


@pytest.mark.parametrize("whole", [True, False])
def test_abandoned_answer_is_cancelled_unless_its_stream_has_begun(whole: bool) -> None:
    observer, gate = EventRecorder(), Gate(initial_passes=1)
    engine = scripted_engine(ScriptedModel(*"abc", gate=gate), observer, workers=1)

    async def read() -> None:
        async with aclosing(engine.stream_text(request_info("one"), "speaker", request)) as chunks:
            complete = engine.handle(request_info("one"), "speaker", request, lambda response: response)
            first = asyncio.ensure_future(complete if whole else anext(chunks))
            if not whole:
                complete.close()
            await asyncio.to_thread(gate.wait_for_arrival)
            await asyncio.to_thread(gate.wait_for_arrival)
            # A complete answer has no part before its end.
            assert first.done() is not whole
            if whole:
                first.cancel()
            await asyncio.wait([first])
        gate.open()
        await wait_until_async(lambda: not engine.busy)

    asyncio.run(read())
    assert [event.outcome for event in observer.events] == [ErrorKind.CANCELLED if whole else None]
