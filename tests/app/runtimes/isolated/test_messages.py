"""What goes through a socket between a server and a model's process."""

import pickle
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from app.runtimes.isolated.memory import SharedMemory
from app.runtimes.isolated.messages import (
    Ended,
    Failure,
    LostMemoryError,
    Question,
    Reply,
    receive,
    receive_exactly,
    send,
)
from tasks.exchange.error import ErrorKind, InferenceError

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.mark.parametrize("message", [Reply([1, "two"], kept=True), Question("predict", b"x", ((0, 5),)), Ended(), {}])
def test_a_message_arrives_as_it_was_sent(ends: Ends, message: object) -> None:
    send(ends[0], message)
    arrived, memory = receive(ends[1])
    assert (arrived, memory) == (message, None)


def test_a_message_larger_than_the_socket_holds_arrives_whole(ends: Ends) -> None:
    large = bytes(range(256)) * 20_000
    sending = threading.Thread(target=send, args=(ends[0], large))
    sending.start()
    assert receive(ends[1])[0] == large
    sending.join()


def test_memory_is_handed_over_with_a_message(ends: Ends) -> None:
    shared = SharedMemory(5000)
    buffer = pickle.PickleBuffer(b"seen by both")
    send(ends[0], "look", (shared.descriptor, shared.size))
    shared.close_descriptor()
    shared.write([buffer], [(64, 12)])
    arrived, memory = receive(ends[1])
    assert arrived == "look"
    assert memory is not None
    assert memory[64:76] == b"seen by both"


def test_a_message_whose_memory_did_not_arrive_is_not_read_for_the_one_before(ends: Ends) -> None:
    """The system drops descriptors that a process has no room for, and hands over the rest."""
    body = pickle.dumps("look")
    ends[0].sendall(struct.pack("<QQ", len(body), 4096) + body)
    send(ends[0], "the next")
    with pytest.raises(LostMemoryError):
        receive(ends[1])
    assert receive(ends[1]) == ("the next", None)


def test_an_end_that_is_closed_is_told_from_silence(ends: Ends) -> None:
    ends[0].close()
    with pytest.raises(EOFError):
        receive(ends[1])


def test_half_a_message_is_none(ends: Ends) -> None:
    ends[0].sendall(b"\5\0\0")
    ends[0].close()
    with pytest.raises(EOFError):
        receive(ends[1])


@pytest.mark.parametrize(
    "garbage",
    [
        (3).to_bytes(8, "little") + bytes(8) + b"abc",
        b"\xff" * 64,
        (2**40).to_bytes(8, "little") + bytes(8),
        (40).to_bytes(8, "little") + bytes(8) + b"\x80\x05cno.such\nmodule\n." + bytes(40),
    ],
)
def test_what_a_process_writes_that_has_lost_its_mind_is_an_error_of_the_line(ends: Ends, garbage: bytes) -> None:
    ends[0].sendall(garbage)
    ends[0].close()
    with pytest.raises((EOFError, OSError)):
        receive(ends[1])


def test_bytes_are_awaited_until_they_are_all_there(ends: Ends) -> None:
    ends[0].sendall(b"ab")
    ends[0].sendall(b"cd")
    assert receive_exactly(ends[1], 4) == b"abcd"


def test_a_failure_is_the_same_error_again() -> None:
    error = InferenceError(ErrorKind.TOO_LARGE, "Expected less", "inputs[0]")
    again = Failure.of(error).error()
    assert (again.kind, again.message, again.path) == (error.kind, error.message, error.path)
