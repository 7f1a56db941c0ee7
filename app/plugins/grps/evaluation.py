"""GRPS over HTTP and gRPC for `charioteer evaluate`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from app.plugins.evaluation.client_protocols import Call, GrpcClientProtocol, HttpClientProtocol, encode_base64
from app.plugins.evaluation.runner import InferenceClientError
from app.plugins.grps.proto import message_class

_OK = 200


def _body(data: bytes, parameters: Mapping[str, object]) -> Mapping[str, Any]:
    """Return a request in `gmap` form: a binary body would need its parameters in the URL, which is limited."""
    texts = {"image.parameters": msgspec.json.encode(parameters).decode()}
    return {"json": {"gmap": {"s_b": {"image": encode_base64(data)}, "s_s": texts}}}


def _infer(call: Call, model: str, data: bytes, parameters: Mapping[str, object]) -> Any:
    request = message_class("grps.protos.v1.GrpsMessage")(model=model)
    request.gmap.s_b["image"] = data
    request.gmap.s_s["image.parameters"] = msgspec.json.encode(parameters).decode()
    answer = call("/grps.protos.v1.GrpsService/Predict", request, "grps.protos.v1.GrpsMessage")
    if answer.status.code != _OK:
        raise InferenceClientError(f"{answer.status.code}: {answer.status.msg}")
    return msgspec.json.decode(answer.gmap.s_s["image"])


CLIENTS = (
    HttpClientProtocol(
        name="grps",
        path=lambda model: f"/grps/v1/infer/predict?model={model}" if model else "/grps/v1/infer/predict",
        request=_body,
        records=lambda answer: msgspec.json.decode(answer["gmap"]["s_s"]["image"]),
        needs_model=False,
    ),
    GrpcClientProtocol(name="grps-grpc", infer=_infer, needs_model=False),
)
