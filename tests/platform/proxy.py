"""A fake of the Chariot platform before an engine: its path, its headers and its store.

It does only what the documentation shows; values that had to be invented are marked as made up.
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

from tests.platform.records import parse_items

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PATH = re.compile(r"/api/serve/serve-model-(?P<id>[0-9a-z-]+)-pred/v2/models/m-(?P=id)/infer/")
_STANDARD = {"made-up.inference-server": "shapes"}
"""Values for standard_metadata. Chariot documents that it fills them in, but not their keys: this key is made up."""
_TYPES: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float, "dict": msgspec.json.decode}


class Registration(NamedTuple):
    """The data with which an engine is registered."""

    address: str
    base_url: str
    """container_root_relative_base_url; ``{id}`` in it is replaced by the model's id."""
    task_type: str


class Stored(NamedTuple):
    """One datum in the Inference Store, with its inference."""

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
        self.responses: list[httpx.Response] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        content = await _body(receive)
        matched = _PATH.fullmatch(scope["path"])
        if matched is None or scope["method"] != "POST":
            await _respond(send, 404, msgspec.json.encode({"error": "not found"}))
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name.lower() == b"content-type"}
        answer = await self._infer(matched["id"], content, headers)
        await _respond(send, answer.status_code, answer.content)

    def filter_inferences(self, key: str, predicate: Callable[[Any], bool]) -> list[Stored]:
        """Return inferences whose metadata `key`, in its declared type, passes `predicate`."""
        return [stored for stored in self.store if key in stored.metadata and predicate(stored.metadata[key])]

    async def _infer(self, model: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
        request = msgspec.json.decode(content)
        inputs: list[Any] = request["inputs"]
        for tensor in inputs:
            if metadata := tensor.get("parameters", {}).get("metadata"):
                tensor["parameters"]["metadata"] = _with_standard_metadata(metadata)
        request_id, base_id = str(uuid.uuid4()), str(uuid.uuid4())
        headers |= {"X-Request-ID": request_id, "Chariot-Inference-Base-ID": base_id, "Chariot-Not-Known": "1"}
        url = f"{self.registration.address}{self.registration.base_url.format(id=model)}infer"
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.post(url, content=msgspec.json.encode(request), headers=headers, timeout=60)
        self.responses.append(answer)
        if answer.status_code == 200:
            body = answer.json()
            assert body["id"] == (request.get("id") or request_id)
            self.store += self._stored(base_id, inputs, body["outputs"])
        return answer

    def _stored(self, base_id: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Stored]:
        stored: list[Stored] = []
        for index, (sent, output) in enumerate(zip(inputs, outputs, strict=True)):
            parameters, metadata = sent.get("parameters", {}), output.get("parameters", {}).get("metadata")
            assert (output["name"], output["datatype"]) == (sent["name"], "BYTES")
            assert metadata == parameters.get("metadata"), "metadata is not what was sent"
            (datum,), (items,) = sent["data"], output["data"]
            image = base64.b64decode(datum)
            pixels = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
            assert pixels is not None
            stored.append(
                Stored(
                    id=f"{base_id}-{index}",
                    data_hash=hashlib.sha256(image).hexdigest(),
                    action=parameters.get("action", ""),
                    metadata=_typed(metadata),
                    items=parse_items(self.registration.task_type, items, (pixels.shape[1], pixels.shape[0])),
                )
            )
        return stored


def _with_standard_metadata(metadata: str) -> str:
    """Add the platform's own metadata; the older form, a bare list, has no place for it."""
    read = msgspec.json.decode(metadata)
    if isinstance(read, dict):
        read["standard_metadata"] = _STANDARD
    return msgspec.json.encode(read).decode()


def _typed(metadata: str | None) -> dict[str, object]:
    read: Any = msgspec.json.decode(metadata or "[]")
    if not isinstance(read, dict):
        read = {"standard_metadata": {}, "extended_metadata": read}
    entries, standard = cast("Any", read["extended_metadata"]), cast("dict[str, object]", read["standard_metadata"])
    return standard | {entry["key"]: _TYPES[entry["type"]](entry["value"]) for entry in entries}


async def _body(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    more = True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)


async def _respond(send: Send, status: int, content: bytes) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
