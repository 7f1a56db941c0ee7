"""What one client may have in hand."""

import asyncio
from contextlib import aclosing

import pytest

from app.engine.admission import Admission, Bounds
from app.engine.events import RequestInfo
from app.protocols.bytes_elements import BinaryElement
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor
from tests.support.pictures import encoded, rectangle
from tests.support.polling import wait_until_async
from tests.support.speaker import Gate, Seen, Speaker, speaking


def admission(most: int | None, max_waiting: int = 100) -> Admission:
    return Admission(
        2,
        Bounds(max_each_client=most, max_waiting=max_waiting),
        own_bound=lambda _: None,
        several=lambda: False,
        expected_wait=lambda _: 0,
    )


def caller(client: str = "", address: str = "") -> RequestInfo:
    return RequestInfo(protocol="test", request_id="1", returned={}, client=client, address=address)


def admitted(to: Admission, sender: RequestInfo) -> int:
    """How many requests come in before one is refused, of twenty."""
    for count in range(20):
        try:
            to.admit(sender, "a", None)
        except InferenceError:
            return count
    return 20


@pytest.mark.parametrize(
    ("sender", "whose"),
    [
        (caller(address="10.0.0.1"), "your address"),
        (caller("camera", "10.0.0.1"), "the key 'camera'"),
    ],
)
def test_as_many_as_it_may_and_no_more(sender: RequestInfo, whose: str) -> None:
    doors = admission(3)
    assert admitted(doors, sender) == 3
    with pytest.raises(InferenceError, match=f"has 3 requests or streams of {whose} in flight") as caught:
        doors.admit(sender, "a", None)
    assert caught.value.kind is ErrorKind.OVERLOADED
    assert sender.returned == {"retry-after": "1"}
    assert doors.in_hand == 3
    doors.leave("a", sender)
    assert admitted(doors, sender) == 1


def test_keys_are_told_apart_behind_one_address_and_are_one_from_several() -> None:
    doors = admission(3)
    assert admitted(doors, caller("one", "10.0.0.1")) == 3
    assert admitted(doors, caller("two", "10.0.0.1")) == 3
    assert admitted(doors, caller("one", "10.0.0.2")) == 0
    assert admitted(doors, caller(address="10.0.0.1")) == 3


def test_whoever_is_not_known_or_not_bounded_is_not_counted() -> None:
    assert admitted(admission(1), caller()) == 20
    assert admitted(admission(None), caller("one")) == 20


def test_a_request_that_is_refused_for_another_reason_is_not_in_hand() -> None:
    doors, sender = admission(5, max_waiting=1), caller("one")
    assert admitted(doors, sender) == 3
    for _ in range(10):
        assert admitted(doors, sender) == 0
    doors.leave("a", sender)
    assert admitted(doors, sender) == 1


def test_a_stream_counts_for_as_long_as_it_is_open_and_its_request_besides() -> None:
    doors, sender = admission(2), caller("one")
    doors.join(sender)
    assert admitted(doors, sender) == 1
    doors.leave("a", sender)
    doors.part(sender)
    assert admitted(doors, sender) == 2


def request() -> InferenceRequest:
    tensor = BytesTensor(name="a", shape=(1,), elements=[BinaryElement(encoded(rectangle()))])
    return InferenceRequest(id="", model_name="speaker", inputs=(tensor,))


@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_that_was_left_halfway_was_told_only_where_pieces_are(whole: bool) -> None:
    seen, gate = Seen(), Gate(opened=1)
    engine = speaking(Speaker(*"abc", gate=gate), seen, workers=1)

    async def read() -> None:
        async with aclosing(engine.stream(caller("one"), "speaker", request, whole=whole)) as pieces:
            assert (await anext(pieces)).text == "a"
            await asyncio.to_thread(gate.await_step)
            await asyncio.to_thread(gate.await_step)
        gate.open()
        await wait_until_async(lambda: not engine.busy)

    asyncio.run(read())
    assert [event.outcome for event in seen.events] == [ErrorKind.CANCELLED if whole else None]
