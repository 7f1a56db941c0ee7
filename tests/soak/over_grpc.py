"""Requests over gRPC: the Open Inference Protocol and GRPS, one message or a stream of them."""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.proto import message_class
from tests.soak.references import PICTURES
from tests.soak.traffic import Material, Outcome, Shot, judged, metadata_of, refused
from tests.soak.wire import Answer, Wire

__all__ = ("numbers_over_grpc", "pictures_over_grpc", "questions_over_grpc")

_V2 = "/inference.GRPCInferenceService"
_GRPS = "/grps.protos.v1.GrpsService"
_InferRequest = message_class("inference.ModelInferRequest")
_InferResponse = message_class("inference.ModelInferResponse")
_StreamResponse = message_class("inference.ModelStreamInferResponse")
_Grps = message_class("grps.protos.v1.GrpsMessage")
_STREAMED = 2
"""Requests of one stream."""


def pictures_over_grpc(material: Material, model: str) -> Sequence[Shot]:
    """Send an image, and expect its records."""

    async def v2(wire: Wire, number: str, chance: random.Random) -> Outcome:
        name = material.picture(chance)
        answer = await wire.call(f"{_V2}/ModelInfer", _v2_picture(material, model, name, number), _named(number))
        return refused(answer) or judged(
            answer, lambda: _v2_fault(material, model, name, number, _InferResponse.FromString(answer.body))
        )

    async def v2_stream(wire: Wire, number: str, chance: random.Random) -> Outcome:
        names = [material.picture(chance) for _ in range(_STREAMED)]
        messages = [_v2_picture(material, model, name, number) for name in names]
        answer = await wire.stream(f"{_V2}/ModelStreamInfer", messages, _named(number), both=True)
        return refused(answer) or _streamed(material, model, names, number, answer)

    async def grps(wire: Wire, number: str, chance: random.Random) -> Outcome:
        name = material.picture(chance)
        asked = _Grps(
            model=model, gmap={"s_b": {"a": material.pictures[name]}, "s_s": {"metadata": metadata_of(number)}}
        )
        answer = await wire.call(f"{_GRPS}/Predict", asked.SerializeToString(), _named(number))

        def fault(message: Any) -> str:
            entries = message.gmap.s_s
            if entries["metadata"] != metadata_of(number):
                return f"metadata came back as {entries['metadata']}"
            right = material.is_found(model, name, msgspec.json.decode(entries["a"]))
            return "" if right else f"answered {entries['a'][:200]}"

        return refused(answer) or _grps_outcome(answer, fault)

    return [
        Shot(surface="kserve-v2, gRPC", model=model, weight=4, ask=v2),
        Shot(surface="kserve-v2, gRPC stream", model=model, weight=1.5, ask=v2_stream, rows=_STREAMED),
        Shot(surface="grps, gRPC", model=model, weight=2, ask=grps),
    ]


def numbers_over_grpc(material: Material, model: str) -> Sequence[Shot]:
    """A number, to be answered with its half and a bit."""

    async def v2(wire: Wire, number: str, chance: random.Random) -> Outcome:
        x = material.number(chance)
        right = material.is_answer(model, x)
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [x]}}
        message = _InferRequest(model_name=model, id=number, inputs=[tensor])
        answer = await wire.call(f"{_V2}/ModelInfer", message.SerializeToString(), _named(number))

        def fault() -> str:
            response = _InferResponse.FromString(answer.body)
            (found,) = response.outputs[0].contents.fp32_contents
            return "" if right(found) and response.id == number else f"{x} was answered with {found} as {response.id}"

        return refused(answer) or judged(answer, fault)

    async def grps(wire: Wire, number: str, chance: random.Random) -> Outcome:
        x = material.number(chance)
        right = material.is_answer(model, x)
        tensor = {"name": "x", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [x]}
        asked = _Grps(model=model, gtensors={"tensors": [tensor]})
        answer = await wire.call(f"{_GRPS}/Predict", asked.SerializeToString(), _named(number))

        def fault(message: Any) -> str:
            (found,) = message.gtensors.tensors[0].flat_float32
            return "" if right(found) else f"{x} was answered with {found}"

        return refused(answer) or _grps_outcome(answer, fault)

    return [
        Shot(surface="kserve-v2, gRPC", model=model, weight=1, ask=v2),
        Shot(surface="grps, gRPC", model=model, weight=1, ask=grps),
    ]


def questions_over_grpc(material: Material) -> Sequence[Shot]:
    """Send a question about an image, with a streamed answer."""

    async def grps_stream(wire: Wire, number: str, chance: random.Random) -> Outcome:
        question = material.question(chance)
        asked = _Grps(model="vlm", gmap={"s_b": {"a": material.pictures[PICTURES[0]]}, "s_s": {"question": question}})
        answer = await wire.stream(f"{_GRPS}/PredictStreaming", [asked.SerializeToString()], _named(number))
        if (other := refused(answer)) is not None:
            return other
        messages = [_Grps.FromString(part) for part in answer.parts]
        failed = [message.status for message in messages if message.status.code != 200]
        if failed:
            return Outcome(failed[-1].code, failed[-1].msg)
        said = "".join(message.gmap.s_s["a"] for message in messages)
        return Outcome(200, "" if said == material.references.answers["vlm", question] else f"answered {said!r}")

    return [Shot(surface="grps, gRPC stream", model="vlm", weight=2, ask=grps_stream)]


def _named(number: str) -> dict[str, str]:
    return {"x-request-id": number}


def _v2_picture(material: Material, model: str, name: str, number: str) -> bytes:
    data = material.pictures[name]
    parameters = {"metadata": {"string_param": metadata_of(number)}}
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "parameters": parameters}
    message = _InferRequest(model_name=model, id=number, inputs=[tensor])
    message.raw_input_contents.append(struct.pack("<I", len(data)) + data)
    return message.SerializeToString()


def _v2_fault(material: Material, model: str, name: str, number: str, response: Any) -> str:
    records = msgspec.json.decode(response.raw_output_contents[0][4:])
    metadata = response.outputs[0].parameters["metadata"].string_param
    if response.id != number or metadata != metadata_of(number):
        return f"came back as {response.id}, with the metadata {metadata}"
    return "" if material.is_found(model, name, records) else f"answered {str(records)[:200]}"


def _streamed(material: Material, model: str, names: Sequence[str], number: str, answer: Answer) -> Outcome:
    responses = [_StreamResponse.FromString(part) for part in answer.parts]
    failed = [message.error_message for message in responses if message.error_message]
    if failed:
        return Outcome(_status_of(failed[0]), failed[0])
    if len(responses) != len(names):
        return Outcome(200, f"{len(names)} requests were answered {len(responses)} times")
    for name, message in zip(names, responses, strict=True):
        outcome = judged(
            answer, lambda name=name, message=message: _v2_fault(material, model, name, number, message.infer_response)
        )
        if outcome.note:
            return outcome
    return Outcome(200)


def _status_of(sentence: str) -> int:
    """Of a failure within a stream, which has a sentence only: what no model can say is a refusal of the moment."""
    return 429 if "takes no more" in sentence or "likely to wait" in sentence else 503


def _grps_outcome(answer: Answer, fault: Callable[[Any], str]) -> Outcome:
    message = _Grps.FromString(answer.body)
    if message.status.code != 200:
        return Outcome(message.status.code, message.status.msg)
    return judged(answer, lambda: fault(message))
