"""A stand-in for what Chariot puts before an engine: its path, its headers, its store.

It does what the documentation shows, and nothing that it does not; what had to be made up says so.
"""

import base64
import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, NamedTuple, cast

import cv2
import httpx
import msgspec
import numpy as np

from tests.platform.records import parsed

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PATH = re.compile(r"/api/serve/serve-model-(?P<id>[0-9a-z-]+)-pred/v2/models/m-(?P=id)/infer/")
_STANDARD = {"made-up.inference-server": "shapes"}
"""What is filled into standard_metadata. That it is filled is documented, its keys are not: this one is made up."""
_TYPES: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float, "dict": msgspec.json.decode}


class Registration(NamedTuple):
    """What an engine is registered with."""

    address: str
    base_url: str
    """container_root_relative_base_url; ``{id}`` in it is the model's."""
    task_type: str


class Stored(NamedTuple):
    """One datum in the Inference Store, with what was inferred of it."""

    id: str
    data_hash: str
    action: str
    metadata: dict[str, object]
    items: Sequence[Any]


class Platform:
    """An ASGI application before one registered engine, which stores what passes through it."""

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.store: list[Stored] = []
        self.seen: list[httpx.Response] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        content = await _body(receive)
        found = _PATH.fullmatch(scope["path"])
        if found is None or scope["method"] != "POST":
            await _respond(send, 404, msgspec.json.encode({"error": "not found"}))
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name.lower() == b"content-type"}
        answer = await self._infer(found["id"], content, headers)
        await _respond(send, answer.status_code, answer.content)

    def filter_inferences(self, key: str, test: Callable[[Any], bool]) -> list[Stored]:
        """Those with metadata of that name, in its declared type, that passes the test."""
        return [each for each in self.store if key in each.metadata and test(each.metadata[key])]

    async def _infer(self, model: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
        request = msgspec.json.decode(content)
        inputs: list[Any] = request["inputs"]
        for each in inputs:
            if metadata := each.get("parameters", {}).get("metadata"):
                each["parameters"]["metadata"] = _filled(metadata)
        request_id, base_id = str(uuid.uuid4()), str(uuid.uuid4())
        headers |= {"X-Request-ID": request_id, "Chariot-Inference-Base-ID": base_id, "Chariot-Not-Known": "1"}
        url = f"{self.registration.address}{self.registration.base_url.format(id=model)}infer"
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.post(url, content=msgspec.json.encode(request), headers=headers, timeout=60)
        self.seen.append(answer)
        if answer.status_code == 200:
            body = answer.json()
            assert body["id"] == (request.get("id") or request_id)
            self.store += self._stored(base_id, inputs, body["outputs"])
        return answer

    def _stored(self, base_id: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Stored]:
        stored: list[Stored] = []
        for index, (sent, output) in enumerate(zip(inputs, outputs, strict=True)):
            asked, metadata = sent.get("parameters", {}), output.get("parameters", {}).get("metadata")
            assert (output["name"], output["datatype"]) == (sent["name"], "BYTES")
            assert metadata == asked.get("metadata"), "metadata is not what was sent"
            (datum,), (items,) = sent["data"], output["data"]
            picture = base64.b64decode(datum)
            pixels = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR)
            assert pixels is not None
            stored.append(
                Stored(
                    id=f"{base_id}-{index}",
                    data_hash=hashlib.sha256(picture).hexdigest(),
                    action=asked.get("action", ""),
                    metadata=_typed(metadata),
                    items=parsed(self.registration.task_type, items, (pixels.shape[1], pixels.shape[0])),
                )
            )
        return stored


def _filled(metadata: str) -> str:
    """With the platform's own metadata in it; the older form, a bare list, has no place for that."""
    read = msgspec.json.decode(metadata)
    if isinstance(read, dict):
        read["standard_metadata"] = _STANDARD
    return msgspec.json.encode(read).decode()


def _typed(metadata: str | None) -> dict[str, object]:
    read: Any = msgspec.json.decode(metadata or "[]")
    if not isinstance(read, dict):
        read = {"standard_metadata": {}, "extended_metadata": read}
    entries, standard = cast("Any", read["extended_metadata"]), cast("dict[str, object]", read["standard_metadata"])
    return standard | {each["key"]: _TYPES[each["type"]](each["value"]) for each in entries}


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _respond(send: Send, status: int, content: bytes) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
