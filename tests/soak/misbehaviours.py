"""Run misbehaving clients. Their own answers hardly matter; the answers to other clients do."""

import asyncio
import random
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec

from tests.soak.references import IMAGES
from tests.soak.run import Run
from tests.soak.server import MAX_BYTES

Misbehaviour = Callable[[Run, random.Random], Awaitable[None]]

_AT_ONCE = 8
_TURNS = 4
_REFUSED = re.compile(rb"HTTP/1.1 (4\d\d|503) ")
_TIMEOUT_SECONDS = 20.0
_TARGETS = (
    "/v2/models/detector/infer",
    "/v2/models/m-classifier/infer",
    "/v1/models/classifier:predict",
    "/v2/models/vlm/generate_stream",
    "/grps/v1/infer/predict?model=half_plus_two",
    "/v2/repository/models/nothing/load",
)
_METHODS = ("/inference.GRPCInferenceService/ModelInfer", "/grps.protos.v1.GrpsService/Predict")


def _repeat_concurrently(misbehave: Misbehaviour) -> Misbehaviour:
    async def cause(run: Run, chance: random.Random) -> None:
        async def repeat() -> None:
            for _ in range(_TURNS):
                with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                    await asyncio.wait_for(misbehave(run, chance), _TIMEOUT_SECONDS)

        await asyncio.gather(*(repeat() for _ in range(_AT_ONCE)))

    return cause


def _request(target: str, body: bytes, length: int | None = None) -> bytes:
    lines = [f"POST {target} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _image_request(run: Run) -> bytes:
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [run.material.texts[IMAGES[1]]]}
    return _request("/v2/models/m-detector/infer", msgspec.json.encode({"inputs": [tensor]}))


def _question_request(run: Run) -> bytes:
    content = {"text_input": "What shape is in the picture?", "image": run.material.texts[IMAGES[0]]}
    return _request("/v2/models/vlm/generate_stream", msgspec.json.encode(content))


async def _open(run: Run) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", run.server.ports.http)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset."""
    raw_socket: socket.socket | None = writer.get_extra_info("socket")
    if raw_socket is not None:
        raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _leave(run: Run, chance: random.Random) -> None:
    reader, writer = await _open(run)
    request = chance.choice([_image_request, _question_request])(run)
    writer.write(request[: chance.choice([20, len(request) // 2, len(request) - 1, len(request)])])
    if chance.random() < 0.5:
        await asyncio.sleep(chance.uniform(0, 0.1))
    elif chance.random() < 0.5:
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(100), 0.2)
    if chance.random() < 0.5:
        _reset(writer)
    else:
        writer.close()


async def _send_slowly(run: Run, chance: random.Random) -> None:
    reader, writer = await _open(run)
    request = _image_request(run)
    step = len(request) // 10 + 1
    for start in range(0, len(request), step):
        writer.write(request[start : start + step])
        await asyncio.sleep(chance.uniform(0.02, 0.15))
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def _half_close(run: Run, chance: random.Random) -> None:
    reader, writer = await _open(run)
    request = _image_request(run)
    writer.write(request if chance.random() < 0.7 else request[: len(request) // 2])
    writer.write_eof()
    await reader.read()
    writer.close()


async def _send_rubbish(run: Run, chance: random.Random) -> None:
    body = _mutated(_image_request(run).partition(b"\r\n\r\n")[2], chance)
    match chance.randrange(4):
        case 0:
            reader, writer = await _open(run)
            writer.write(chance.randbytes(chance.randrange(1, 3000)) + b"\r\n\r\n")
            await reader.read(1000)
            writer.close()
        case 1:
            answer = await run.wire.call(chance.choice(_METHODS), chance.randbytes(chance.randrange(1, 3000)))
            _check_status(run, answer.status, answer.note)
        case 2:
            headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "37"}
            answer = await run.wire.http("POST", chance.choice(_TARGETS), body, headers)
            _check_status(run, answer.status, answer.note or str(answer.body[:200]))
        case _:
            answer = await run.wire.http("POST", chance.choice(_TARGETS), body, {"Content-Type": "application/json"})
            _check_status(run, answer.status, answer.note or str(answer.body[:200]))


async def _send_too_much(run: Run, chance: random.Random) -> None:
    if chance.random() < 0.3:
        answer = await run.wire.call(chance.choice(_METHODS), bytes(MAX_BYTES + 1000))
        _check_status(run, answer.status, answer.note)
        return
    reader, writer = await _open(run)
    if chance.random() < 0.5:
        writer.write(_request(chance.choice(_TARGETS), bytes(1000), MAX_BYTES * 10))
    else:
        writer.write(
            b"POST /v2/models/detector/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(MAX_BYTES // 65536 + 2):
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            with suppress(ConnectionError):
                await writer.drain()
    head = await reader.read(100)
    if head and not _REFUSED.match(head):
        run.add_finding(f"A body beyond the limit was answered with {head!r}")
    writer.close()


def _mutated(body: bytes, chance: random.Random) -> bytes:
    """Return a body with a part removed, repeated or overwritten."""
    start = chance.randrange(min(len(body), 200))
    size = chance.randrange(1, 40)
    match chance.randrange(4):
        case 0:
            return body[:start]
        case 1:
            return body[:start] + body[start + size :]
        case 2:
            return body[: start + size] + body[start:]
        case _:
            return body[:start] + chance.randbytes(size) + body[start + size :]


def _check_status(run: Run, status: int, reason: str) -> None:
    if status in (0, 500):
        run.add_finding(f"Rubbish was answered with {status}: {reason}")


MISBEHAVIOURS: Mapping[str, Misbehaviour] = {
    "clients that leave": _repeat_concurrently(_leave),
    "slow senders": _repeat_concurrently(_send_slowly),
    "half-closed connections": _repeat_concurrently(_half_close),
    "rubbish": _repeat_concurrently(_send_rubbish),
    "oversized bodies": _repeat_concurrently(_send_too_much),
}
"""By the name of the fault."""
