"""Send requests over HTTP: Chariot, KServe V2 and V1, TensorFlow Serving, GRPS."""

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tests.soak.references import IMAGES
from tests.soak.traffic import Outcome, RequestKind, RequestMaterial, check_answer, metadata_of, refusal_of
from tests.soak.wire import Answer, Wire

Body: TypeAlias = tuple[bytes, Mapping[str, str]]
Read: TypeAlias = Callable[[Answer], tuple[object, object]]

_JSON = {"Content-Type": "application/json"}
_OCTETS = {"Content-Type": "application/octet-stream"}
_SAMPLES = 60
_MAX_EXPLANATIONS = 1
"""At once; a server computes one explanation at a time, and queues two."""
_NOT_FOUND = 404
_NO_SERVABLE = b"Servable not found"


class Encoding(msgspec.Struct, frozen=True, kw_only=True):
    """The encoding of a request in a protocol.

    Attributes:
        surface: its name in the tables.
        weight: how often it is sent.
        target: the path, with a placeholder for the model.
        body: builds a body from an image name or a number, and the id of the request.
        read: returns the result and the metadata of a response.
        echoes: whether the response must have the metadata.
        port: the name of the port; the main one otherwise.
    """

    surface: str
    weight: float
    target: str
    body: Callable[[Any, str], Body]
    read: Read
    echoes: bool = False
    port: str = "http"

    async def send(
        self, wire: Wire, model: str, content: object, number: str, right: Callable[[object], bool]
    ) -> Outcome:
        """Send a request, and check the answer with `right`."""
        body, headers = self.body(content, number)
        target, port = self.target.format(model=model), getattr(wire.ports, self.port)
        answer = await wire.http("POST", target, body, {**headers, "X-Request-ID": number}, port)
        if answer.status == _NOT_FOUND and self.port == "tensorflow_serving" and _NO_SERVABLE in answer.body:
            # TensorFlow Serving returns this for a model that is loading.
            return Outcome(503, _NO_SERVABLE.decode())
        return refusal_of(answer) or check_answer(answer, lambda: self._fault(answer, number, right))

    def _fault(self, answer: Answer, number: str, right: Callable[[object], bool]) -> str:
        found, metadata = self.read(answer)
        if self.port == "http" and answer.headers.get("x-request-id") != number:
            return f"answered under the id {answer.headers.get('x-request-id')}"
        if self.echoes and metadata != metadata_of(number):
            return f"metadata came back as {metadata}"
        return "" if right(found) else f"answered {str(found)[:200]}"


def images_over_http(material: RequestMaterial, model: str) -> Sequence[RequestKind]:
    """Send an image in every encoding that accepts one, and expect its records."""

    def request_kind(encoding: Encoding) -> RequestKind:
        async def send(wire: Wire, number: str, chance: random.Random) -> Outcome:
            name = material.image_name(chance)
            return await encoding.send(
                wire, model, name, number, lambda found: material.is_expected(model, name, found)
            )

        return RequestKind(surface=encoding.surface, model=model, weight=encoding.weight, send=send)

    encodings = _image_encodings(material)
    return [
        request_kind(encoding)
        for encoding in encodings
        if encoding.surface != "tensorflow-serving" or model == "classifier"
    ]


def numbers_over_http(material: RequestMaterial, model: str) -> Sequence[RequestKind]:
    """Send a number in every encoding that accepts one, and expect half of it plus a constant."""

    def request_kind(encoding: Encoding) -> RequestKind:
        async def send(wire: Wire, number: str, chance: random.Random) -> Outcome:
            x = material.number(chance)
            return await encoding.send(wire, model, x, number, material.is_answer(model, x))

        return RequestKind(surface=encoding.surface, model=model, weight=encoding.weight, send=send)

    return [request_kind(encoding) for encoding in _NUMBER_ENCODINGS]


def questions_over_http(material: RequestMaterial) -> Sequence[RequestKind]:
    """Send a question about an image, with a streamed answer."""
    data, text = material.images[IMAGES[0]], material.texts[IMAGES[0]]

    async def generate_stream(wire: Wire, number: str, chance: random.Random) -> Outcome:
        question = material.question(chance)
        content = {"text_input": question, "image": text, "parameters": {"metadata": metadata_of(number)}}
        headers = {**_JSON, "X-Request-ID": number}
        answer = await wire.http("POST", "/v2/models/vlm/generate_stream", msgspec.json.encode(content), headers)
        if (refusal := refusal_of(answer)) is not None:
            return refusal
        events = [msgspec.json.decode(event[6:]) for event in answer.body.split(b"\n\n") if event.startswith(b"data: ")]
        if events and "error" in events[-1]:
            return Outcome(503, events[-1]["error"])
        answer_text = "".join(event["text_output"] for event in events)
        echoed = bool(events) and events[0].get("parameters") == {"metadata": metadata_of(number)}
        right = echoed and answer_text == material.references.answers["vlm", question]
        return Outcome(200, "" if right else f"answered {events}"[:300])

    async def grps_stream(wire: Wire, number: str, chance: random.Random) -> Outcome:
        question = material.question(chance)
        target = f"/grps/v1/infer/predict?model=vlm&streaming=true&prompts={question.replace(' ', '+')}"
        answer = await wire.http("POST", target, data, {**_OCTETS, "X-Request-ID": number})
        if (refusal := refusal_of(answer)) is not None:
            return refusal
        messages = msgspec.json.decode(b"[" + answer.body.replace(b"}{", b"},{") + b"]")
        if messages and messages[-1]["status"]["code"] != 200:
            return Outcome(messages[-1]["status"]["code"], messages[-1]["status"]["msg"])
        answer_text = "".join(message.get("str_data", "") for message in messages)
        return Outcome(
            200, "" if answer_text == material.references.answers["vlm", question] else f"answered {answer_text!r}"
        )

    return [
        RequestKind(surface="kserve-v2, generate_stream", model="vlm", weight=2, send=generate_stream),
        RequestKind(surface="grps, HTTP stream", model="vlm", weight=2, send=grps_stream),
    ]


def explanations(material: RequestMaterial) -> Sequence[RequestKind]:
    """Request an explanation now and then, which needs many model calls."""
    name = IMAGES[0]
    instances = {"instances": [{"b64": material.texts[name]}], "parameters": {"samples": _SAMPLES, "seed": 1}}
    best = material.references.records["classifier", name][0]["label"]
    encoding = Encoding(
        surface="kserve-v1, :explain",
        weight=0.3,
        target="/v1/models/{model}:explain",
        body=lambda _, __: (msgspec.json.encode(instances), _JSON),
        read=lambda answer: (msgspec.json.decode(answer.body), None),
    )

    def right(found: Any) -> bool:
        (explained,) = found["explanations"][0]
        return material.is_expected("classifier", name, found["predictions"][0]) and explained["label"] == best

    async def send(wire: Wire, number: str, _: random.Random) -> Outcome:
        return await encoding.send(wire, "classifier", name, number, right)

    return [
        RequestKind(
            surface=encoding.surface, model="classifier", weight=encoding.weight, send=send, max_open=_MAX_EXPLANATIONS
        )
    ]


def _json(answer: Answer) -> Any:
    return msgspec.json.decode(answer.body)


def _v2(inputs: Mapping[str, object], **fields: object) -> bytes:
    return msgspec.json.encode({"inputs": [inputs], **fields})


def _image_encodings(material: RequestMaterial) -> Sequence[Encoding]:
    def v2(name: str, number: str) -> Body:
        tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [material.texts[name]]}
        return _v2({**tensor, "parameters": {"metadata": metadata_of(number)}}), _JSON

    def v2_binary(name: str, number: str) -> Body:
        data = material.images[name]
        element = struct.pack("<I", len(data)) + data
        parameters = {"binary_data_size": len(element), "metadata": metadata_of(number)}
        tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "parameters": parameters}
        head = _v2(tensor, parameters={"binary_data_output": True})
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
        Encoding(
            surface="chariot-v2-kserve",
            weight=4,
            target="/v2/models/m-{model}/infer",
            body=v2,
            read=lambda answer: (_json(answer)["outputs"][0]["data"][0], _echoed_metadata(answer)),
            echoes=True,
        ),
        Encoding(
            surface="kserve-v2, JSON",
            weight=3,
            target="/v2/models/{model}/infer",
            body=v2,
            read=lambda answer: (msgspec.json.decode(_json(answer)["outputs"][0]["data"][0]), _echoed_metadata(answer)),
            echoes=True,
        ),
        Encoding(
            surface="kserve-v2, binary",
            weight=3,
            target="/v2/models/{model}/infer",
            body=v2_binary,
            read=read_binary,
            echoes=True,
        ),
        Encoding(
            surface="kserve-v1",
            weight=2,
            target="/v1/models/{model}:predict",
            body=v1,
            read=lambda answer: (_json(answer)["predictions"][0], _json(answer)["parameters"][0]["metadata"]),
            echoes=True,
        ),
        Encoding(
            surface="tensorflow-serving",
            weight=4,
            target="/v1/models/{model}:predict",
            body=tensorflow_serving,
            read=_classes,
            port="tensorflow_serving",
        ),
        Encoding(
            surface="grps, HTTP",
            weight=2,
            target="/grps/v1/infer/predict?model={model}",
            body=lambda name, _: (material.images[name], _OCTETS),
            read=lambda answer: (msgspec.json.decode(_json(answer)["str_data"]), None),
        ),
    ]


def _echoed_metadata(answer: Answer) -> object:
    return _json(answer)["outputs"][0].get("parameters", {}).get("metadata")


def _classes(answer: Answer) -> tuple[object, object]:
    (row,) = _json(answer)["predictions"]
    pairs = zip(row["labels"], row["scores"], strict=True)
    return [{"label": label, "score": score} for label, score in pairs], None


_NUMBER_ENCODINGS = (
    Encoding(
        surface="kserve-v2, JSON",
        weight=1,
        target="/v2/models/{model}/infer",
        body=lambda x, _: (_v2({"name": "x", "shape": [1], "datatype": "FP32", "data": [x]}), _JSON),
        read=lambda answer: (_json(answer)["outputs"][0]["data"][0], None),
    ),
    Encoding(
        surface="kserve-v1",
        weight=1,
        target="/v1/models/{model}:predict",
        body=lambda x, _: (msgspec.json.encode({"instances": [x]}), _JSON),
        read=lambda answer: (_json(answer)["predictions"][0], None),
    ),
    Encoding(
        surface="tensorflow-serving",
        weight=1,
        target="/v1/models/{model}:predict",
        body=lambda x, _: (msgspec.json.encode({"instances": [x]}), _JSON),
        read=lambda answer: (_json(answer)["predictions"][0], None),
        port="tensorflow_serving",
    ),
    Encoding(
        surface="grps, HTTP",
        weight=1,
        target="/grps/v1/infer/predict?model={model}",
        body=lambda x, _: (msgspec.json.encode({"ndarray": [x]}), _JSON),
        read=lambda answer: (_json(answer)["gtensors"]["tensors"][0]["flat_float32"][0], None),
    ),
)
