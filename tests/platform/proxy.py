"""A fake of the Chariot platform before an engine: its path, its headers and its store.

It does only what the documentation shows; values that had to be invented are marked as made up.
"""

import base64
import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, cast

import cv2
import httpx
import msgspec
import numpy as np

_PATH = re.compile(r"/api/serve/serve-model-(?P<id>[0-9a-z-]+)-pred/v2/models/m-(?P=id)/infer/")
MODELS = {
    "classifier": ("IMAGE_CLASSIFICATION", "shape.jpg"),
    "detector": ("OBJECT_DETECTION", "scene.jpg"),
    "oriented-detector": ("ORIENTED_OBJECT_DETECTION", "oriented.jpg"),
    "segmenter": ("IMAGE_SEGMENTATION", "scene.jpg"),
    "vlm": ("IMAGE_TEXT_TO_TEXT", "shape.jpg"),
}
"""The task type of each fixture model, and an image for it."""
_STANDARD = {"made-up.inference-server": "shapes"}
"""Values for standard_metadata. Chariot documents that it fills them in, but not their keys: this key is made up."""
_TYPES: dict[str, Callable[[str], object]] = {"str": str, "int": int, "float": float, "dict": msgspec.json.decode}


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Size = tuple[int, int]
"""Width and height in pixels."""


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: float
    y: float


LABELLED: Mapping[str, Any] = {"label": str, "score": Share}
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "IMAGE_CLASSIFICATION": LABELLED,
    # Corners in pixels, y down.
    "OBJECT_DETECTION": {**LABELLED, "xmin": float, "ymin": float, "xmax": float, "ymax": float},
    # Shares of the image's width (cx, w) and height (cy, h); r in radians, clockwise.
    "ORIENTED_OBJECT_DETECTION": {**LABELLED, "cx": Share, "cy": Share, "w": Positive, "h": Positive, "r": float},
    "IMAGE_SEGMENTATION": {**LABELLED, "contour": list[list[Point]]},
    "IMAGE_TEXT_TO_TEXT": {"prompt": str, "answer": str},
}
ITEMS = {
    name: msgspec.defstruct(name, [*fields.items()], forbid_unknown_fields=True) for name, fields in FIELDS.items()
}
"""How Chariot reads the items of each task type: exactly the documented fields."""


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
    """A handler of `httpx.MockTransport` before one registered engine, which stores what passes through it."""

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.store: list[Stored] = []
        self.responses: list[httpx.Response] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        matched = _PATH.fullmatch(request.url.path)
        if matched is None or request.method != "POST":
            return httpx.Response(404, json={"error": "not found"})
        answer = self._infer(matched["id"], request.content, {"Content-Type": request.headers["Content-Type"]})
        return httpx.Response(answer.status_code, content=answer.content)

    def filter_inferences(self, key: str, predicate: Callable[[Any], bool]) -> list[Stored]:
        """Return inferences whose metadata `key`, in its declared type, passes `predicate`."""
        return [stored for stored in self.store if key in stored.metadata and predicate(stored.metadata[key])]

    def _infer(self, model: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
        request = msgspec.json.decode(content)
        inputs: list[Any] = request["inputs"]
        for tensor in inputs:
            if metadata := tensor.get("parameters", {}).get("metadata"):
                tensor["parameters"]["metadata"] = _with_standard_metadata(metadata)
        request_id, base_id = str(uuid.uuid4()), str(uuid.uuid4())
        headers |= {"X-Request-ID": request_id, "Chariot-Inference-Base-ID": base_id, "Chariot-Not-Known": "1"}
        url = f"{self.registration.address}{self.registration.base_url.format(id=model)}infer"
        answer = httpx.post(url, content=msgspec.json.encode(request), headers=headers, timeout=180)
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
                    items=_parse_items(self.registration.task_type, items, (pixels.shape[1], pixels.shape[0])),
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


def _parse_items(task_type: str, items: object, size: Size) -> Sequence[Any]:
    """Parse the items of one image.

    Raise ValueError if a field is missing, unknown or of another type, or if an item lies outside the image.
    """
    parsed_items: list[Any] = msgspec.convert(items, list[ITEMS[task_type]])
    for item in parsed_items:
        if any(not (0 <= x <= size[0] and 0 <= y <= size[1]) for x, y in _points(item)):
            raise ValueError(f"{item} lies outside the image")
    return parsed_items


def _points(item: Any) -> Iterator[tuple[float, float]]:
    """Yield the points in pixels that must be inside the image."""
    if hasattr(item, "xmin"):
        yield from ((item.xmin, item.ymin), (item.xmax, item.ymax))
    for part in getattr(item, "contour", ()):
        yield from ((point.x, point.y) for point in part)
