"""Requests over HTTP: Chariot, KServe V2 and V1, TensorFlow Serving, GRPS."""

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tests.soak.references import PICTURES
from tests.soak.traffic import Material, Outcome, Shot, judged, metadata_of, refused
from tests.soak.wire import Answer, Wire

__all__ = ("explanations", "numbers_over_http", "pictures_over_http", "questions_over_http")

Body: TypeAlias = tuple[bytes, Mapping[str, str]]
Read: TypeAlias = Callable[[Answer], tuple[object, object]]

_JSON = {"Content-Type": "application/json"}
_OCTETS = {"Content-Type": "application/octet-stream"}
_SAMPLES = 60
_EXPLAINED = 1
"""At once: a server explains one thing at a time, and lets two wait."""
_NOT_FOUND = 404
_NO_SERVABLE = b"Servable not found"


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a protocol is asked something.

    Attributes:
        surface: its name in the tables.
        weight: how often it is taken.
        target: the path, with a place for the model.
        body: builds a body from an image name or a number, and the id of the request.
        read: what was answered, and the metadata that came back.
        echoes: whether metadata has to come back.
        port: the name of the port; the main one otherwise.
    """

    surface: str
    weight: float
    target: str
    body: Callable[[Any, str], Body]
    read: Read
    echoes: bool = False
    port: str = "http"

    async def ask(self, wire: Wire, model: str, asked: object, number: str, right: Callable[[object], bool]) -> Outcome:
        """Send it, and hold the answer against what is right."""
        body, headers = self.body(asked, number)
        target, port = self.target.format(model=model), getattr(wire.ports, self.port)
        answer = await wire.http("POST", target, body, {**headers, "X-Request-ID": number}, port)
        if answer.status == _NOT_FOUND and self.port == "tensorflow_serving" and _NO_SERVABLE in answer.body:
            # So TensorFlow Serving says it of a model that loads, too.
            return Outcome(503, _NO_SERVABLE.decode())
        return refused(answer) or judged(answer, lambda: self._fault(answer, number, right))

    def _fault(self, answer: Answer, number: str, right: Callable[[object], bool]) -> str:
        found, metadata = self.read(answer)
        if self.port == "http" and answer.headers.get("x-request-id") != number:
            return f"answered under the id {answer.headers.get('x-request-id')}"
        if self.echoes and metadata != metadata_of(number):
            return f"metadata came back as {metadata}"
        return "" if right(found) else f"answered {str(found)[:200]}"


def pictures_over_http(material: Material, model: str) -> Sequence[Shot]:
    """Send an image in every encoding that accepts one, and expect its records."""

    def shot(way: Way) -> Shot:
        async def ask(wire: Wire, number: str, chance: random.Random) -> Outcome:
            name = material.picture(chance)
            return await way.ask(wire, model, name, number, lambda found: material.is_found(model, name, found))

        return Shot(surface=way.surface, model=model, weight=way.weight, ask=ask)

    ways = _picture_ways(material)
    return [shot(way) for way in ways if way.surface != "tensorflow-serving" or model == "classifier"]


def numbers_over_http(material: Material, model: str) -> Sequence[Shot]:
    """A number, to be answered with its half and a bit, in every way that takes one."""

    def shot(way: Way) -> Shot:
        async def ask(wire: Wire, number: str, chance: random.Random) -> Outcome:
            x = material.number(chance)
            return await way.ask(wire, model, x, number, material.is_answer(model, x))

        return Shot(surface=way.surface, model=model, weight=way.weight, ask=ask)

    return [shot(way) for way in _NUMBER_WAYS]


def questions_over_http(material: Material) -> Sequence[Shot]:
    """Send a question about an image, with a streamed answer."""
    picture, text = material.pictures[PICTURES[0]], material.texts[PICTURES[0]]

    async def generate_stream(wire: Wire, number: str, chance: random.Random) -> Outcome:
        question = material.question(chance)
        asked = {"text_input": question, "image": text, "parameters": {"metadata": metadata_of(number)}}
        headers = {**_JSON, "X-Request-ID": number}
        answer = await wire.http("POST", "/v2/models/vlm/generate_stream", msgspec.json.encode(asked), headers)
        if (other := refused(answer)) is not None:
            return other
        events = [msgspec.json.decode(event[6:]) for event in answer.body.split(b"\n\n") if event.startswith(b"data: ")]
        if events and "error" in events[-1]:
            return Outcome(503, events[-1]["error"])
        said = "".join(event["text_output"] for event in events)
        echoed = bool(events) and events[0].get("parameters") == {"metadata": metadata_of(number)}
        right = echoed and said == material.references.answers["vlm", question]
        return Outcome(200, "" if right else f"answered {events}"[:300])

    async def grps_stream(wire: Wire, number: str, chance: random.Random) -> Outcome:
        question = material.question(chance)
        target = f"/grps/v1/infer/predict?model=vlm&streaming=true&prompts={question.replace(' ', '+')}"
        answer = await wire.http("POST", target, picture, {**_OCTETS, "X-Request-ID": number})
        if (other := refused(answer)) is not None:
            return other
        messages = msgspec.json.decode(b"[" + answer.body.replace(b"}{", b"},{") + b"]")
        if messages and messages[-1]["status"]["code"] != 200:
            return Outcome(messages[-1]["status"]["code"], messages[-1]["status"]["msg"])
        said = "".join(message.get("str_data", "") for message in messages)
        return Outcome(200, "" if said == material.references.answers["vlm", question] else f"answered {said!r}")

    return [
        Shot(surface="kserve-v2, generate_stream", model="vlm", weight=2, ask=generate_stream),
        Shot(surface="grps, HTTP stream", model="vlm", weight=2, ask=grps_stream),
    ]


def explanations(material: Material) -> Sequence[Shot]:
    """Now and then the reasons for an answer, which take many calls of the model."""
    name = PICTURES[0]
    instances = {"instances": [{"b64": material.texts[name]}], "parameters": {"samples": _SAMPLES, "seed": 1}}
    best = material.references.records["classifier", name][0]["label"]
    way = Way(
        surface="kserve-v1, :explain",
        weight=0.3,
        target="/v1/models/{model}:explain",
        body=lambda _, __: (msgspec.json.encode(instances), _JSON),
        read=lambda answer: (msgspec.json.decode(answer.body), None),
    )

    def right(found: Any) -> bool:
        (explained,) = found["explanations"][0]
        return material.is_found("classifier", name, found["predictions"][0]) and explained["label"] == best

    async def ask(wire: Wire, number: str, _: random.Random) -> Outcome:
        return await way.ask(wire, "classifier", name, number, right)

    return [Shot(surface=way.surface, model="classifier", weight=way.weight, ask=ask, most=_EXPLAINED)]


def _document(answer: Answer) -> Any:
    return msgspec.json.decode(answer.body)


def _v2(inputs: Mapping[str, object], **more: object) -> bytes:
    return msgspec.json.encode({"inputs": [inputs], **more})


def _picture_ways(material: Material) -> Sequence[Way]:
    def v2(name: str, number: str) -> Body:
        described = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [material.texts[name]]}
        return _v2({**described, "parameters": {"metadata": metadata_of(number)}}), _JSON

    def v2_binary(name: str, number: str) -> Body:
        data = material.pictures[name]
        element = struct.pack("<I", len(data)) + data
        parameters = {"binary_data_size": len(element), "metadata": metadata_of(number)}
        described = {"name": "image", "shape": [1], "datatype": "BYTES", "parameters": parameters}
        head = _v2(described, parameters={"binary_data_output": True})
        return head + element, {**_OCTETS, "Inference-Header-Content-Length": str(len(head))}

    def read_binary(answer: Answer) -> tuple[object, object]:
        size = int(answer.headers["inference-header-content-length"])
        head = msgspec.json.decode(answer.body[:size])
        return msgspec.json.decode(answer.body[size + 4 :]), head["outputs"][0]["parameters"].get("metadata")

    def v1(name: str, number: str) -> Body:
        instance = {"b64": material.texts[name], "parameters": {"metadata": metadata_of(number)}}
        return msgspec.json.encode({"instances": [instance]}), _JSON

    def tensorflow_serving(name: str, _: str) -> Body:
        return msgspec.json.encode({"instances": [{"b64": material.texts[name]}]}), _JSON

    return [
        Way(
            surface="chariot-v2-kserve",
            weight=4,
            target="/v2/models/m-{model}/infer",
            body=v2,
            read=lambda answer: (_document(answer)["outputs"][0]["data"][0], _echoed(answer)),
            echoes=True,
        ),
        Way(
            surface="kserve-v2, JSON",
            weight=3,
            target="/v2/models/{model}/infer",
            body=v2,
            read=lambda answer: (msgspec.json.decode(_document(answer)["outputs"][0]["data"][0]), _echoed(answer)),
            echoes=True,
        ),
        Way(
            surface="kserve-v2, binary",
            weight=3,
            target="/v2/models/{model}/infer",
            body=v2_binary,
            read=read_binary,
            echoes=True,
        ),
        Way(
            surface="kserve-v1",
            weight=2,
            target="/v1/models/{model}:predict",
            body=v1,
            read=lambda answer: (_document(answer)["predictions"][0], _document(answer)["parameters"][0]["metadata"]),
            echoes=True,
        ),
        Way(
            surface="tensorflow-serving",
            weight=4,
            target="/v1/models/{model}:predict",
            body=tensorflow_serving,
            read=_classes,
            port="tensorflow_serving",
        ),
        Way(
            surface="grps, HTTP",
            weight=2,
            target="/grps/v1/infer/predict?model={model}",
            body=lambda name, _: (material.pictures[name], _OCTETS),
            read=lambda answer: (msgspec.json.decode(_document(answer)["str_data"]), None),
        ),
    ]


def _echoed(answer: Answer) -> object:
    return _document(answer)["outputs"][0].get("parameters", {}).get("metadata")


def _classes(answer: Answer) -> tuple[object, object]:
    (row,) = _document(answer)["predictions"]
    pairs = zip(row["labels"], row["scores"], strict=True)
    return [{"label": label, "score": score} for label, score in pairs], None


_NUMBER_WAYS = (
    Way(
        surface="kserve-v2, JSON",
        weight=1,
        target="/v2/models/{model}/infer",
        body=lambda x, _: (_v2({"name": "x", "shape": [1], "datatype": "FP32", "data": [x]}), _JSON),
        read=lambda answer: (_document(answer)["outputs"][0]["data"][0], None),
    ),
    Way(
        surface="kserve-v1",
        weight=1,
        target="/v1/models/{model}:predict",
        body=lambda x, _: (msgspec.json.encode({"instances": [x]}), _JSON),
        read=lambda answer: (_document(answer)["predictions"][0], None),
    ),
    Way(
        surface="tensorflow-serving",
        weight=1,
        target="/v1/models/{model}:predict",
        body=lambda x, _: (msgspec.json.encode({"instances": [x]}), _JSON),
        read=lambda answer: (_document(answer)["predictions"][0], None),
        port="tensorflow_serving",
    ),
    Way(
        surface="grps, HTTP",
        weight=1,
        target="/grps/v1/infer/predict?model={model}",
        body=lambda x, _: (msgspec.json.encode({"ndarray": [x]}), _JSON),
        read=lambda answer: (_document(answer)["gtensors"]["tensors"][0]["flat_float32"][0], None),
    ),
)
