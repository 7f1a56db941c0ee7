"""Send requests over gRPC: the Open Inference Protocol and GRPS, unary and streamed."""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.plugins.grps.proto import message_class
from tests.soak.references import IMAGES
from tests.soak.traffic import Outcome, RequestKind, RequestMaterial, check_answer, metadata_of, refusal_of
from tests.soak.wire import Answer, Wire

_V2 = "/inference.GRPCInferenceService"
_GRPS = "/grps.protos.v1.GrpsService"
_InferRequest = message_class("inference.ModelInferRequest")
_InferResponse = message_class("inference.ModelInferResponse")
_StreamResponse = message_class("inference.ModelStreamInferResponse")
_Grps = message_class("grps.protos.v1.GrpsMessage")
_REQUESTS_PER_STREAM = 2
"""Requests in one stream."""


def images_over_grpc(material: RequestMaterial, model: str) -> Sequence[RequestKind]:
    """Send an image, and expect its records."""

    async def v2(wire: Wire, number: str, chance: random.Random) -> Outcome:
        name = material.image_name(chance)
        answer = await wire.call(
            f"{_V2}/ModelInfer", _v2_image_message(material, model, name, number), _request_id(number)
        )
        return refusal_of(answer) or check_answer(
            answer, lambda: _v2_fault(material, model, name, number, _InferResponse.FromString(answer.body))
        )

    async def v2_stream(wire: Wire, number: str, chance: random.Random) -> Outcome:
        names = [material.image_name(chance) for _ in range(_REQUESTS_PER_STREAM)]
        messages = [_v2_image_message(material, model, name, number) for name in names]
        answer = await wire.stream(f"{_V2}/ModelStreamInfer", messages, _request_id(number), both=True)
        return refusal_of(answer) or _check_stream(material, model, names, number, answer)

    async def grps(wire: Wire, number: str, chance: random.Random) -> Outcome:
        name = material.image_name(chance)
        request = _Grps(
            model=model, gmap={"s_b": {"a": material.images[name]}, "s_s": {"metadata": metadata_of(number)}}
        )
        answer = await wire.call(f"{_GRPS}/Predict", request.SerializeToString(), _request_id(number))

        def fault(message: Any) -> str:
            entries = message.gmap.s_s
            if entries["metadata"] != metadata_of(number):
                return f"metadata came back as {entries['metadata']}"
            right = material.is_expected(model, name, msgspec.json.decode(entries["a"]))
            return "" if right else f"answered {entries['a'][:200]}"

        return refusal_of(answer) or _grps_outcome(answer, fault)

    return [
        RequestKind(surface="kserve-v2, gRPC", model=model, weight=4, send=v2),
        RequestKind(
            surface="kserve-v2, gRPC stream", model=model, weight=1.5, send=v2_stream, rows=_REQUESTS_PER_STREAM
        ),
        RequestKind(surface="grps, gRPC", model=model, weight=2, send=grps),
    ]


def numbers_over_grpc(material: RequestMaterial, model: str) -> Sequence[RequestKind]:
    """Send a number, and expect half of it plus a constant."""

    async def v2(wire: Wire, number: str, chance: random.Random) -> Outcome:
        x = material.number(chance)
        right = material.is_answer(model, x)
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [x]}}
        message = _InferRequest(model_name=model, id=number, inputs=[tensor])
        answer = await wire.call(f"{_V2}/ModelInfer", message.SerializeToString(), _request_id(number))

        def fault() -> str:
            response = _InferResponse.FromString(answer.body)
            (value,) = response.outputs[0].contents.fp32_contents
            return "" if right(value) and response.id == number else f"{x} was answered with {value} as {response.id}"

        return refusal_of(answer) or check_answer(answer, fault)

    async def grps(wire: Wire, number: str, chance: random.Random) -> Outcome:
        x = material.number(chance)
        right = material.is_answer(model, x)
        tensor = {"name": "x", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [x]}
        request = _Grps(model=model, gtensors={"tensors": [tensor]})
        answer = await wire.call(f"{_GRPS}/Predict", request.SerializeToString(), _request_id(number))

        def fault(message: Any) -> str:
            (value,) = message.gtensors.tensors[0].flat_float32
            return "" if right(value) else f"{x} was answered with {value}"

        return refusal_of(answer) or _grps_outcome(answer, fault)

    return [
        RequestKind(surface="kserve-v2, gRPC", model=model, weight=1, send=v2),
        RequestKind(surface="grps, gRPC", model=model, weight=1, send=grps),
    ]


def questions_over_grpc(material: RequestMaterial) -> Sequence[RequestKind]:
    """Send a question about an image, with a streamed answer."""

    async def grps_stream(wire: Wire, number: str, chance: random.Random) -> Outcome:
        question = material.question(chance)
        request = _Grps(model="vlm", gmap={"s_b": {"a": material.images[IMAGES[0]]}, "s_s": {"question": question}})
        answer = await wire.stream(f"{_GRPS}/PredictStreaming", [request.SerializeToString()], _request_id(number))
        if (refusal := refusal_of(answer)) is not None:
            return refusal
        messages = [_Grps.FromString(part) for part in answer.parts]
        failed = [message.status for message in messages if message.status.code != 200]
        if failed:
            return Outcome(failed[-1].code, failed[-1].msg)
        answer_text = "".join(message.gmap.s_s["a"] for message in messages)
        return Outcome(
            200, "" if answer_text == material.references.answers["vlm", question] else f"answered {answer_text!r}"
        )

    return [RequestKind(surface="grps, gRPC stream", model="vlm", weight=2, send=grps_stream)]


def _request_id(number: str) -> dict[str, str]:
    return {"x-request-id": number}


def _v2_image_message(material: RequestMaterial, model: str, name: str, number: str) -> bytes:
    data = material.images[name]
    parameters = {"metadata": {"string_param": metadata_of(number)}}
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "parameters": parameters}
    message = _InferRequest(model_name=model, id=number, inputs=[tensor])
    message.raw_input_contents.append(struct.pack("<I", len(data)) + data)
    return message.SerializeToString()


def _v2_fault(material: RequestMaterial, model: str, name: str, number: str, response: Any) -> str:
    records = msgspec.json.decode(response.raw_output_contents[0][4:])
    metadata = response.outputs[0].parameters["metadata"].string_param
    if response.id != number or metadata != metadata_of(number):
        return f"came back as {response.id}, with the metadata {metadata}"
    return "" if material.is_expected(model, name, records) else f"answered {str(records)[:200]}"


def _check_stream(material: RequestMaterial, model: str, names: Sequence[str], number: str, answer: Answer) -> Outcome:
    responses = [_StreamResponse.FromString(part) for part in answer.parts]
    failed = [message.error_message for message in responses if message.error_message]
    if failed:
        return Outcome(_status_of(failed[0]), failed[0])
    if len(responses) != len(names):
        return Outcome(200, f"{len(names)} requests were answered {len(responses)} times")
    for name, message in zip(names, responses, strict=True):
        outcome = check_answer(
            answer, lambda name=name, message=message: _v2_fault(material, model, name, number, message.infer_response)
        )
        if outcome.note:
            return outcome
    return Outcome(200)


def _status_of(sentence: str) -> int:
    """Return the status of an error message in a stream, which has no status: 429 or 503."""
    return 429 if "takes no more" in sentence or "likely to wait" in sentence else 503


def _grps_outcome(answer: Answer, fault: Callable[[Any], str]) -> Outcome:
    message = _Grps.FromString(answer.body)
    if message.status.code != 200:
        return Outcome(message.status.code, message.status.msg)
    return check_answer(answer, lambda: fault(message))
