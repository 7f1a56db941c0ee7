"""What generic tests need to know about each HTTP protocol: requests, the error shape and the permissions of routes."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from app.core.protocols.protocol import Permission
from tests.support.data.chariot import image_input

Built = tuple[str, Any]
"""A path, and a body: bytes, or a value to encode as JSON."""


def _read_error(status: int, reply: Mapping[str, Any]) -> str:
    del status
    assert set(reply) <= {"error", "detail"}
    return reply["error"]


class ProtocolCase(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One protocol.

    Attributes:
        infer: build an inference with a model, images or texts in base64, and parameters.
        tensors: build an inference of `echo-fp32` with this number of elements; None if JSON cannot carry tensors.
        observed: paths of inferences by the model `detector`, whose rejections observers must see.
        permissions: the permission of each route on the main port.
        read_error: check the body of an error with its status, and return its message.
        media_type: media type of an inference.
        has_parameters: whether a request carries parameters such as prompts.
        image_model: a model that takes any number of images; tests use it where the task does not matter.
    """

    infer: Callable[[str, Sequence[str], Mapping[str, Any]], Built]
    tensors: Callable[[int], Built] | None = None
    observed: Sequence[str]
    permissions: Mapping[str, Permission] = {}
    read_error: Callable[[int, Mapping[str, Any]], str] = _read_error
    media_type: str = "application/json"
    has_parameters: bool = True
    image_model: str = "detector"

    def encode(self, built: Built) -> tuple[str, bytes]:
        path, body = built
        return path, body if isinstance(body, bytes) else json.dumps(body).encode()


def _chariot(model: str, images: Sequence[str], parameters: Mapping[str, Any]) -> Built:
    return f"/v2/models/m-{model}/infer", {"inputs": [image_input(list(images), **parameters)]}


def _json_lines(model: str, images: Sequence[str], parameters: Mapping[str, Any]) -> Built:
    body = "\n".join(json.dumps({"input": image, "parameters": parameters}) for image in images)
    return f"/v2/models/m-{model}/infer", body.encode()


def _kserve_v2(model: str, images: Sequence[str], parameters: Mapping[str, Any]) -> Built:
    return f"/v2/models/{model}/infer", {"inputs": [image_input(list(images), **parameters)]}


def _kserve_v2_tensors(count: int) -> Built:
    tensor = {"name": "x", "shape": [1, count], "datatype": "FP32", "data": [0.5] * count}
    return "/v2/models/echo-fp32/infer", {"inputs": [tensor]}


def _kserve_v1(model: str, images: Sequence[str], parameters: Mapping[str, Any]) -> Built:
    instances = [{"image": {"b64": image}, "parameters": parameters} for image in images]
    return f"/v1/models/{model}:predict", {"instances": instances}


def _instances(count: int) -> Built:
    return "/v1/models/echo-fp32:predict", {"instances": [[0.5] * count]}


def _grps(model: str, images: Sequence[str], parameters: Mapping[str, Any]) -> Built:
    data = {f"i{index}": image for index, image in enumerate(images)}
    gmap = {"s_b": data, "s_s": {"parameters": json.dumps(parameters)}}
    return "/grps/v1/infer/predict", {"model": model, "gmap": gmap}


def _grps_tensors(count: int) -> Built:
    return "/grps/v1/infer/predict", {"model": "echo-fp32", "ndarray": [[0.5] * count]}


def _read_grps_error(status: int, reply: Mapping[str, Any]) -> str:
    assert list(reply) == ["status"]
    assert reply["status"]["code"] == status
    return reply["status"]["msg"]


def _tensorflow(model: str, images: Sequence[str], parameters: Mapping[str, Any]) -> Built:
    prompts = parameters.get("prompts")
    rows = [{"image": {"b64": image}} | ({"prompts": prompts} if prompts else {}) for image in images]
    return f"/v1/models/{model}:predict", {"instances": rows}


def _openai(model: str, images: Sequence[str], parameters: Mapping[str, Any]) -> Built:
    urls = [f"data:image/png;base64,{image}" for image in images]
    content = [*({"type": "image_url", "image_url": {"url": url}} for url in urls), {"type": "text", "text": "What?"}]
    body = {"model": model, "messages": [{"role": "user", "content": content}], **parameters}
    return "/openai/v1/chat/completions", body


def _read_openai_error(status: int, reply: Mapping[str, Any]) -> str:
    assert list(reply) == ["error"]
    assert list(reply["error"]) == ["message", "type", "param", "code"]
    expected = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    default = "server_error" if status >= 500 else "invalid_request_error"
    assert reply["error"]["type"] == expected.get(status, default)
    return reply["error"]["message"]


_TARGET, _VERSION = "/v2/models/{target:str}", "/v2/models/{target:str}/versions/{version:str}"
_SETTINGS = ("/v2/logging", "/v2/trace/setting", f"{_TARGET}/trace/setting")
_OPENAI = ("chat/completions", "embeddings")
_MEMORY = ("/v2/systemsharedmemory", "/v2/cudasharedmemory")
_REGION = tuple(f"{path}/region/{{region:str}}" for path in _MEMORY)
_GRPS = "/grps/v1"

PROTOCOL_CASES: Mapping[str, ProtocolCase] = {
    "chariot-v2-kserve": ProtocolCase(
        infer=_chariot,
        observed=("/v2/models/m-detector/infer",),
        permissions={"POST /infer": "infer", f"POST {_TARGET}/infer": "infer", f"GET {_TARGET}/ready": "infer"},
    ),
    "chariot-v2": ProtocolCase(infer=_json_lines, observed=("/infer",), media_type="application/jsonl"),
    "kserve-v2": ProtocolCase(
        infer=_kserve_v2,
        tensors=_kserve_v2_tensors,
        observed=("/v2/models/detector/infer",),
        permissions={
            "GET /v2/health/live": "open",
            "GET /v2/health/ready": "open",
            "GET /v2": "infer",
            "GET /v2/models": "infer",
            "GET /v2/models/stats": "read",
            **{f"GET {path}": "infer" for path in (_TARGET, f"{_TARGET}/ready", _VERSION, f"{_VERSION}/ready")},
            **{f"GET {path}/stats": "read" for path in (_TARGET, _VERSION)},
            **{f"GET {path}/config": "infer" for path in (_TARGET, _VERSION)},
            **{f"POST {path}/infer": "infer" for path in (_TARGET, _VERSION)},
            **{f"{method} {path}": "infer" for path in _SETTINGS for method in ("GET", "POST")},
            **{
                f"{method} {path}/{call}": "infer"
                for method in ("GET", "POST")
                for path in (*_MEMORY, *_REGION)
                for call in ("status", "unregister", *(("register",) if path in _REGION else ()))
            },
            "POST /v2/repository/index": "read",
            "POST /v2/repository/models/{target:str}/load": "admin",
            "POST /v2/repository/models/{target:str}/unload": "admin",
        },
    ),
    "kserve-v1": ProtocolCase(
        infer=_kserve_v1,
        tensors=_instances,
        observed=("/v1/models/detector:predict", "/v1/models/detector:explain"),
        permissions=dict.fromkeys(
            ("GET /v1/models", "GET /v1/models/{target:str}", "POST /v1/models/{target:str}"), "infer"
        ),
    ),
    "grps": ProtocolCase(
        infer=_grps,
        tensors=_grps_tensors,
        observed=("/grps/v1/infer/predict?model=detector",),
        permissions={
            **{f"{method} {_GRPS}/health/{name}": "open" for method in ("GET", "POST") for name in ("live", "ready")},
            **{f"{method} {_GRPS}/health/{name}line": "admin" for method in ("GET", "POST") for name in ("on", "off")},
            f"GET {_GRPS}/metadata/server": "infer",
            **{f"POST {_GRPS}/{path}": "infer" for path in ("metadata/server", "metadata/model", "infer/predict")},
        },
        read_error=_read_grps_error,
    ),
    "openai": ProtocolCase(
        infer=_openai,
        observed=(),
        permissions={
            **{f"POST {prefix}/{path}": "infer" for prefix in ("/openai/v1", "/v1") for path in _OPENAI},
            "GET /openai/v1/models": "infer",
            "GET /openai/v1/models/{target:str}": "infer",
        },
        read_error=_read_openai_error,
        has_parameters=False,
        image_model="teller",
    ),
    "tensorflow-serving": ProtocolCase(
        infer=_tensorflow,
        tensors=_instances,
        observed=("/v1/models/detector:predict",),
        has_parameters=False,
    ),
}
"""Each protocol by its name. Tests fail for a protocol that is missing here or in fixtures/wire."""
