"""Provide the decoders of request data, and an initial corpus for each."""

from collections.abc import Callable, Iterator, Mapping

from app.core.assembly.models import load
from app.core.engine.models.registry import Registry
from app.core.protocols.chariot_v2_kserve import codec as chariot
from app.core.protocols.kserve_v2 import codec, protobuf
from app.core.protocols.kserve_v2.binary import unpack_bytes
from app.core.settings.model import ModelSource
from app.core.settings.server import DEMO_MODELS
from app.core.wire.protobuf_limits import parse_message
from app.plugins.grps.codec import PredictCodec
from app.plugins.grps.json_messages import read_json_message
from app.plugins.grps.messages import GrpsMessage
from app.plugins.tensorflow_serving.values import read_object, read_tensor
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype
from tasks.vision.header import image_size
from tasks.vision.image import decode_image
from tests.fuzz.cases import cases
from tests.fuzz.images import FORMATS, encode_sample
from tests.fuzz.requests import Call, Http

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
            PredictCodec(registry, lambda: (parse_message(GrpsMessage, data, limits), False), name).decode()

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
        yield from map(encode_sample, FORMATS)
        return
    if decoder == "bytes-elements":
        yield b"\x04\0\0\0\xc3\x85sa\0\0\0\0"
        return
    protocols = {
        "v2-binary": ("kserve-v2", "kserve-v2-binary"),
        "v2-protobuf": ("kserve-v2-grpc",), "grps-protobuf": ("grps-grpc",),
        "grps-json": ("grps",), "chariot-json": ("chariot-v2-kserve",), "tensorflow-json": ("tensorflow-serving",),
    }[decoder]  # fmt: skip
    for _, request in cases(protocols):
        if isinstance(request, Call):
            yield from request.messages
        elif isinstance(request, Http) and request.body:
            length = len(request.head).to_bytes(_LENGTH_BYTES, "big") if decoder == "v2-binary" else b""
            yield length + request.body


def decode_or_reject(decode: Decoder, data: bytes) -> None:
    """Call a decoder, and ignore `InferenceError`."""
    try:
        decode(data)
    except InferenceError:
        return
