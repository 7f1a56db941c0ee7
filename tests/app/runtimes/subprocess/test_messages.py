"""Test the messages on the socket between the server and a model process."""

import pickle
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from app.runtimes.remote import Failure
from app.runtimes.subprocess.memory import SharedMemory
from app.runtimes.subprocess.messages import (
    Call,
    MissingMemoryError,
    Reply,
    StreamEnd,
    receive,
    receive_exactly,
    send,
)
from tasks.inference.error import ErrorKind, InferenceError

SocketPair = tuple[socket.socket, socket.socket]


@pytest.fixture
def sockets() -> Iterator[SocketPair]:
    first, second = socket.socketpair()
    with first, second:
        yield first, second


@pytest.mark.parametrize(
    "message", [Reply([1, "two"], memory_in_use=True), Call("predict", b"x", ((0, 5),)), StreamEnd(), {}]
)
def test_a_message_arrives_as_it_was_sent(sockets: SocketPair, message: object) -> None:
    send(sockets[0], message)
    arrived, memory = receive(sockets[1])
    assert (arrived, memory) == (message, None)


def test_message_larger_than_socket_buffer_arrives_complete(sockets: SocketPair) -> None:
    large = bytes(range(256)) * 20_000
    sending = threading.Thread(target=send, args=(sockets[0], large))
    sending.start()
    assert receive(sockets[1])[0] == large
    sending.join()


def test_shared_memory_is_sent_with_message(sockets: SocketPair) -> None:
    shared = SharedMemory(5000)
    buffer = pickle.PickleBuffer(b"seen by both")
    send(sockets[0], "look", (shared.descriptor, shared.size))
    shared.close_descriptor()
    shared.write([buffer], [(64, 12)])
    arrived, memory = receive(sockets[1])
    assert arrived == "look"
    assert memory is not None
    assert memory[64:76] == b"seen by both"


def test_a_message_whose_memory_did_not_arrive_is_not_read_for_the_one_before(sockets: SocketPair) -> None:
    """Send a message without its descriptor, as the kernel does at the receiver's descriptor limit."""
    body = pickle.dumps("look")
    sockets[0].sendall(struct.pack("<QQ", len(body), 4096) + body)
    send(sockets[0], "the next")
    with pytest.raises(MissingMemoryError):
        receive(sockets[1])
    assert receive(sockets[1]) == ("the next", None)


def test_closed_socket_raises_eof_error(sockets: SocketPair) -> None:
    sockets[0].close()
    with pytest.raises(EOFError):
        receive(sockets[1])


def test_incomplete_message_raises_eof_error(sockets: SocketPair) -> None:
    sockets[0].sendall(b"\5\0\0")
    sockets[0].close()
    with pytest.raises(EOFError):
        receive(sockets[1])


@pytest.mark.parametrize(
    "garbage",
    [
        (3).to_bytes(8, "little") + bytes(8) + b"abc",
        b"\xff" * 64,
        (2**40).to_bytes(8, "little") + bytes(8),
        (40).to_bytes(8, "little") + bytes(8) + b"\x80\x05cno.such\nmodule\n." + bytes(40),
    ],
)
def test_garbage_on_socket_raises_error(sockets: SocketPair, garbage: bytes) -> None:
    sockets[0].sendall(garbage)
    sockets[0].close()
    with pytest.raises((EOFError, OSError)):
        receive(sockets[1])


def test_receive_exactly_waits_for_all_bytes(sockets: SocketPair) -> None:
    sockets[0].sendall(b"ab")
    sockets[0].sendall(b"cd")
    assert receive_exactly(sockets[1], 4) == b"abcd"


def test_failure_restores_original_error() -> None:
    error = InferenceError(ErrorKind.TOO_LARGE, "Expected less", "inputs[0]")
    restored = Failure.from_error(error).to_error()
    assert (restored.kind, restored.message, restored.path) == (error.kind, error.message, error.path)
