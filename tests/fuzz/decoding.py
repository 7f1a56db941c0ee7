"""Provide the decoders of request data, and an initial corpus for each."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf.message import Message

from app.core.assembly.models import load
from app.core.engine.models.registry import Registry
from app.core.protocols.chariot_v2_kserve import codec as chariot
from app.core.protocols.kserve_v2 import codec, protobuf
from app.core.protocols.kserve_v2.binary import unpack_bytes
from app.core.settings.model import ModelSource
from app.core.settings.server import DEMO_MODELS
from app.core.wire.protobuf_limits import parse_message
from app.plugins.grps.codec import GrpsCodec
from app.plugins.grps.json_messages import read_json_message
from app.plugins.grps.messages import GrpsMessage
from app.plugins.grps.proto import message_class
from app.plugins.tensorflow_serving.values import read_object, read_tensor
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype
from tasks.vision.header import image_size
from tasks.vision.image import decode_image
from tests.support.data.golden import CASES, HEADER_LENGTH
from tests.support.data.images import encode_image, rectangle

_MAX_PIXELS = 4_000_000
_LENGTH_BYTES = 2
_MODELS = ("detector", "half_plus_two", "greeter")

Decoder = Callable[[bytes], object]


def decoders() -> Mapping[str, Decoder]:
    """Return all decoders, with three fixture models."""
    sources = [ModelSource(name=name, version="1", folder=DEMO_MODELS / name) for name in _MODELS]
    registry = Registry(sources)
    for source in sources:
        registry.load(source, load)
    limits = Limits()
    models = {name: registry.find(name, None).ready_servable() for name in _MODELS}

    def v2_binary(data: bytes) -> None:
        length = int.from_bytes(data[:_LENGTH_BYTES], "big")
        for name, model in models.items():
            codec.decode(data[_LENGTH_BYTES:], str(length), model, model_name=name, model_version=None, limits=limits)

    def v2_protobuf(data: bytes) -> None:
        for model in models.values():
            protobuf.decode(parse_message(protobuf.InferRequest, data, limits), model, limits)

    def grps_protobuf(data: bytes) -> None:
        for name in _MODELS:
            GrpsCodec(registry, lambda: (parse_message(GrpsMessage, data, limits), False), name).decode()

    def tensorflow_json(data: bytes) -> None:
        for value in read_object(data, limits).values():
            for datatype in Datatype:
                read_tensor("x", datatype, value)

    def image(data: bytes) -> None:
        width, height = image_size(data)
        if width * height <= _MAX_PIXELS:
            decode_image(data)

    return {
        "bytes-elements": lambda data: unpack_bytes(data, "inputs[0]", limits.max_entries),
        "v2-binary": v2_binary,
        "v2-protobuf": v2_protobuf,
        "grps-protobuf": grps_protobuf,
        "grps-json": lambda data: read_json_message(data, limits),
        "chariot-json": lambda data: chariot.decode(
            data, model_name="m", model_version=None, request_id="r", limits=limits
        ),
        "tensorflow-json": tensorflow_json,
        "image": image,
    }


def corpus(decoder: str) -> Iterator[bytes]:
    """Return the initial inputs of a decoder: the golden cases of its kind, or images."""
    if decoder == "image":
        yield from (encode_image(rectangle(), file_format) for file_format in ("JPEG", "PNG", "WEBP", "TIFF", "GIF"))
        return
    if decoder == "bytes-elements":
        yield b"\x04\0\0\0\xc3\x85sa\0\0\0\0"
        return
    if decoder.endswith("-protobuf"):
        yield from (message.SerializeToString() for message in _messages(decoder))
        return
    protocol = {
        "v2-binary": "kserve-v2", "grps-json": "grps", "chariot-json": "chariot-v2-kserve",
        "tensorflow-json": "tensorflow-serving",
    }[decoder]  # fmt: skip
    for body, headers in (case.body() for case in CASES if case.protocol == protocol):
        if body:
            length = int(headers.get(HEADER_LENGTH, len(body)))
            yield (length.to_bytes(_LENGTH_BYTES, "big") if decoder == "v2-binary" else b"") + body


def _messages(decoder: str) -> Iterator[Message]:
    image = encode_image(rectangle())
    if decoder == "grps-protobuf":
        yield message_class("grps.protos.v1.GrpsMessage")(model="detector", bin_data=image)
        tensor = {"name": "x", "dtype": 7, "shape": [1], "flat_float32": [1.5]}
        yield message_class("grps.protos.v1.GrpsMessage")(model="half_plus_two", gtensors={"tensors": [tensor]})
        return
    message: Any = message_class("inference.ModelInferRequest")(model_name="detector")
    tensor = message.inputs.add(name="image", datatype="BYTES", shape=[1])
    tensor.parameters["score_threshold"].double_param = 0.2
    tensor.contents.bytes_contents.append(image)
    yield message
    message = message_class("inference.ModelInferRequest")(model_name="half_plus_two")
    message.inputs.add(name="x", datatype="FP32", shape=[1])
    message.raw_input_contents.append(b"\0\0\x80?")
    yield message


def decode_or_reject(decode: Decoder, data: bytes) -> None:
    """Call a decoder, and ignore `InferenceError`."""
    try:
        decode(data)
    except InferenceError:
        return
