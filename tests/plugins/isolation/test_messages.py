"""Test the messages between the server and a model process, arrays in shared memory, and batches of calls."""

import os
import pickle
import resource
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from app.plugins.isolation.messages import MissingMemoryError, allocate, pickle_inputs, receive, send
from app.plugins.isolation.remote import Failure, run_batch
from tasks.inference.error import ErrorKind, InferenceError
from tasks.vision.image import Image

SocketPair = tuple[socket.socket, socket.socket]

_SHAPES = arrays.array_shapes(max_dims=3, max_side=70)
_ARRAYS = arrays.arrays(st.sampled_from([np.uint8, np.float32, np.bool_, np.int64]), _SHAPES)


@pytest.fixture
def sockets() -> Iterator[SocketPair]:
    first, second = socket.socketpair()
    with first, second:
        yield first, second


def test_message_larger_than_socket_buffer_arrives_complete(sockets: SocketPair) -> None:
    large = bytes(range(256)) * 20_000
    sending = threading.Thread(target=send, args=(sockets[0], large))
    sending.start()
    assert receive(sockets[1])[0] == large
    sending.join()


def test_a_message_whose_memory_did_not_arrive_is_not_read_for_the_one_before(sockets: SocketPair) -> None:
    """Send a message without its descriptor, as the kernel does at the receiver's descriptor limit."""
    body = pickle.dumps("look")
    sockets[0].sendall(struct.pack("<Q?", len(body), True) + body)
    send(sockets[0], "the next")
    with pytest.raises(MissingMemoryError):
        receive(sockets[1])
    assert receive(sockets[1]) == ("the next", None)


def header(length: int) -> bytes:
    """Return the header of a message without memory."""
    return struct.pack("<Q?", length, False)


BAD_PICKLE = b"\x80\x05cno.such\nmodule\n." + bytes(40)


@pytest.mark.parametrize(
    "garbage", [b"", b"\5\0\0", header(3) + b"abc", b"\xff" * 64, header(2**60), header(40) + BAD_PICKLE]
)
def test_incomplete_or_invalid_message_raises_error(sockets: SocketPair, garbage: bytes) -> None:
    sockets[0].sendall(garbage)
    sockets[0].close()
    with pytest.raises((EOFError, OSError)):
        receive(sockets[1])


def test_failure_restores_original_error() -> None:
    error = InferenceError(ErrorKind.OVERLOADED, "Expected less", "inputs[0]", retry_after=3)
    assert vars(Failure.from_error(error).to_error()) == vars(error)


def transfer(value: object) -> Any:
    """Return `value` as the other process reads it."""
    body, arrays, spans = pickle_inputs(value)
    descriptor, memory = allocate(sum(spans[-1]) if spans else 1)
    for array, (offset, length) in zip(arrays, spans, strict=True):
        memory[offset : offset + length] = np.frombuffer(array, np.uint8)
    first, second = socket.socketpair()
    with first, second:
        send(first, body, descriptor)
        os.close(descriptor)
        received, mapped = receive(second)
    assert mapped is not None
    return pickle.loads(received, buffers=[memoryview(mapped)[start : start + length] for start, length in spans])


@settings(max_examples=30)
@given(st.lists(_ARRAYS, max_size=4))
def test_arrays_arrive_unchanged(sent_arrays: list[NDArray[Any]]) -> None:
    for sent, received in zip(sent_arrays, transfer(sent_arrays), strict=True):
        assert sent.dtype == received.dtype
        np.testing.assert_array_equal(sent, received)


@given(st.integers(0, 3), st.integers(1, 40), st.booleans())
def test_sliced_or_transposed_arrays_arrive_unchanged(start: int, step: int, transposed: bool) -> None:
    full = np.arange(200 * 300, dtype=np.int32).reshape(200, 300)
    view = full[start::step].T if transposed else full[start::step]
    np.testing.assert_array_equal(transfer(view), view)


def test_only_large_arrays_are_put_in_shared_memory() -> None:
    image = Image(np.zeros((480, 640, 3), np.uint8))
    body, arrays, spans = pickle_inputs([image, np.zeros(10), b"x" * 5000])
    assert [array.nbytes for array in arrays] == [480 * 640 * 3]
    assert spans == [(0, 480 * 640 * 3)]
    assert len(body) < 6000
    assert pickle_inputs((640, 480))[1:] == ([], [])


def test_received_array_is_writable_and_keeps_memory_mapped() -> None:
    pixels = np.zeros((100, 100), np.uint8)
    received = transfer(pixels)
    received += 1
    view = received[5]
    del received
    assert (view.max(), pixels.max()) == (1, 0)


@pytest.mark.parametrize(
    ("size", "max_files", "reason"), [(2**61, None, ""), (5000, 0, "Too many open files")], ids=["memory", "descriptor"]
)
def test_failed_allocation_is_rejected_and_leaves_no_descriptor(size: int, max_files: int | None, reason: str) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft if max_files is None else max_files, hard))
    try:
        with pytest.raises(InferenceError, match=f"No shared memory .* for the model's inputs: {reason}") as caught:
            allocate(size)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.kind is ErrorKind.OVERLOADED
    assert len(list(Path("/proc/self/fd").iterdir())) == before


class Doubling:
    """Doubles numbers, but fails for negative ones."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __call__(self, inputs: Sequence[int], /) -> Sequence[int]:
        self.calls.append(list(inputs))
        if any(number < 0 for number in inputs):
            raise InferenceError(ErrorKind.INVALID_REQUEST, "Expected no negative number", "inputs[0]")
        return [2 * number for number in inputs]


@given(st.lists(st.lists(st.integers(min_value=0)), min_size=1))
def test_batched_calls_get_their_own_results(calls: list[list[int]]) -> None:
    model = Doubling()
    assert run_batch(model, calls) == [[2 * number for number in call] for call in calls]
    assert len(model.calls) == 1


def test_failed_call_does_not_affect_others() -> None:
    failure = Failure(ErrorKind.INVALID_REQUEST, "Expected no negative number", "inputs[0]")
    assert run_batch(Doubling(), [[1], [-1, 2], [3]]) == [[2], failure, [6]]
    assert str(failure.to_error()) == "inputs[0]: Expected no negative number"


def test_single_failed_call_is_not_repeated() -> None:
    model = Doubling()
    assert isinstance(run_batch(model, [[-1]])[0], Failure)
    assert model.calls == [[-1]]


def test_too_few_results_are_a_model_failure() -> None:
    outcomes = run_batch(lambda _: [1], [[1], [2]])
    assert outcomes == [[1], [1]]
    (outcome,) = run_batch(lambda _: [1], [[1, 2]])
    assert outcome == Failure(ErrorKind.MODEL_FAILED, "The model answered 1 of 2 inputs", "")


def test_exception_of_a_model_is_a_model_failure() -> None:
    def fail(_: Sequence[int]) -> Sequence[int]:
        raise RuntimeError("no")

    assert run_batch(fail, [[1]]) == [Failure(ErrorKind.MODEL_FAILED, "The model failed: no", "")]
