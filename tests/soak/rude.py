"""Clients that do what no client should. What they are answered hardly matters; what everybody else is, does."""

import asyncio
import random
import re
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec

from tests.soak.references import PICTURES
from tests.soak.run import Run
from tests.soak.server import MOST_BYTES

__all__ = ("RUDE",)

Rude = Callable[[Run, random.Random], Awaitable[None]]

_AT_ONCE = 8
_TURNS = 4
_REFUSED = re.compile(rb"HTTP/1.1 (4\d\d|503) ")
_PATIENCE = 20.0
_TARGETS = (
    "/v2/models/detector/infer",
    "/v2/models/m-classifier/infer",
    "/v1/models/classifier:predict",
    "/v2/models/vlm/generate_stream",
    "/grps/v1/infer/predict?model=half_plus_two",
    "/v2/repository/models/nothing/load",
)
_METHODS = ("/inference.GRPCInferenceService/ModelInfer", "/grps.protos.v1.GrpsService/Predict")


def _many(one: Rude) -> Rude:
    async def cause(run: Run, chance: random.Random) -> None:
        async def again() -> None:
            for _ in range(_TURNS):
                with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                    await asyncio.wait_for(one(run, chance), _PATIENCE)

        await asyncio.gather(*(again() for _ in range(_AT_ONCE)))

    return cause


def _request(target: str, body: bytes, length: int | None = None) -> bytes:
    lines = [f"POST {target} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _picture_request(run: Run) -> bytes:
    described = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [run.material.texts[PICTURES[1]]]}
    return _request("/v2/models/m-detector/infer", msgspec.json.encode({"inputs": [described]}))


def _question_request(run: Run) -> bytes:
    asked = {"text_input": "What shape is in the picture?", "image": run.material.texts[PICTURES[0]]}
    return _request("/v2/models/vlm/generate_stream", msgspec.json.encode(asked))


async def _opened(run: Run) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", run.server.ports.http)


def _slam(writer: asyncio.StreamWriter) -> None:
    """Close with a reset."""
    held: socket.socket | None = writer.get_extra_info("socket")
    if held is not None:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _leave(run: Run, chance: random.Random) -> None:
    reader, writer = await _opened(run)
    request = chance.choice([_picture_request, _question_request])(run)
    writer.write(request[: chance.choice([20, len(request) // 2, len(request) - 1, len(request)])])
    if chance.random() < 0.5:
        await asyncio.sleep(chance.uniform(0, 0.1))
    elif chance.random() < 0.5:
        with suppress(TimeoutError):
            await asyncio.wait_for(reader.read(100), 0.2)
    if chance.random() < 0.5:
        _slam(writer)
    else:
        writer.close()


async def _send_slowly(run: Run, chance: random.Random) -> None:
    reader, writer = await _opened(run)
    request = _picture_request(run)
    step = len(request) // 10 + 1
    for start in range(0, len(request), step):
        writer.write(request[start : start + step])
        await asyncio.sleep(chance.uniform(0.02, 0.15))
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def _half_close(run: Run, chance: random.Random) -> None:
    reader, writer = await _opened(run)
    request = _picture_request(run)
    writer.write(request if chance.random() < 0.7 else request[: len(request) // 2])
    writer.write_eof()
    await reader.read()
    writer.close()


async def _rubbish(run: Run, chance: random.Random) -> None:
    body = _mutated(_picture_request(run).partition(b"\r\n\r\n")[2], chance)
    match chance.randrange(4):
        case 0:
            reader, writer = await _opened(run)
            writer.write(chance.randbytes(chance.randrange(1, 3000)) + b"\r\n\r\n")
            await reader.read(1000)
            writer.close()
        case 1:
            answer = await run.wire.call(chance.choice(_METHODS), chance.randbytes(chance.randrange(1, 3000)))
            _honest(run, answer.status, answer.note)
        case 2:
            headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "37"}
            answer = await run.wire.http("POST", chance.choice(_TARGETS), body, headers)
            _honest(run, answer.status, answer.note or str(answer.body[:200]))
        case _:
            answer = await run.wire.http("POST", chance.choice(_TARGETS), body, {"Content-Type": "application/json"})
            _honest(run, answer.status, answer.note or str(answer.body[:200]))


async def _send_too_much(run: Run, chance: random.Random) -> None:
    if chance.random() < 0.3:
        answer = await run.wire.call(chance.choice(_METHODS), bytes(MOST_BYTES + 1000))
        _honest(run, answer.status, answer.note)
        return
    reader, writer = await _opened(run)
    if chance.random() < 0.5:
        writer.write(_request(chance.choice(_TARGETS), bytes(1000), MOST_BYTES * 10))
    else:
        writer.write(
            b"POST /v2/models/detector/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(MOST_BYTES // 65536 + 2):
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            with suppress(ConnectionError):
                await writer.drain()
    head = await reader.read(100)
    if head and not _REFUSED.match(head):
        run.find(f"A body beyond the limit was answered with {head!r}")
    writer.close()


def _mutated(body: bytes, chance: random.Random) -> bytes:
    """A body with a part cut out, written twice, or overwritten."""
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


def _honest(run: Run, status: int, reason: str) -> None:
    if status in (0, 500):
        run.find(f"Rubbish was answered with {status}: {reason}")


RUDE: Mapping[str, Rude] = {
    "clients that leave": _many(_leave),
    "slow senders": _many(_send_slowly),
    "half-closed connections": _many(_half_close),
    "rubbish": _many(_rubbish),
    "oversized bodies": _many(_send_too_much),
}
"""By the name of the fault."""
