"""Collect requests to mutate: golden cases in fixtures/wire, the same over gRPC, and the other routes."""

import json
import struct
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import Message

from app.core.proto import INFERENCE
from app.plugins.grps.proto import GRPS, message_class
from tasks.inference.tensor import Datatype
from tests.fuzz.images import encode_sample
from tests.fuzz.models import SPARE
from tests.fuzz.requests import Call, Http, Request

WIRE = Path(__file__).parents[2] / "fixtures" / "wire"

_HOST = (b"host", b"127.0.0.1")
_JSON = (b"content-type", b"application/json")
_CONTENTS_FIELDS = {
    "BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip

_ROUTES = """
GET /
GET /health
GET /ready
GET /metrics
GET /schema
GET /v1/models
GET /v1/models/detector
GET /v2
GET /v2/health/live
GET /v2/health/ready
GET /v2/models
GET /v2/models/stats
GET /v2/models/detector
GET /v2/models/detector/ready
GET /v2/models/detector/stats
GET /v2/models/detector/versions/1
GET /v2/models/detector/versions/1/ready
GET /v2/models/detector/versions/1/stats
GET /openai/v1/models/detector
GET /inferences?limit=2&model=detector
GET /page/models
GET /page/samples
GET /page/samples/scene.jpg
GET /grps/v1/monitor/series?name=*qps
POST /v2/repository/index {"ready": true}
POST /v2/repository/models/SPARE/load {"parameters": {"config": "{}"}}
POST /v2/repository/models/SPARE/load
POST /v2/repository/models/SPARE/unload
POST /v2/models/teller/generate {"text_input": "What is it?", "image": "IMAGE", "max_tokens": 4}
POST /v2/models/continuer/generate {"text_input": "a red car", "parameters": {"max_new_tokens": 9}}
POST /v2/models/continuer/generate_stream {"text_input": "a red car", "parameters": {"max_new_tokens": 9}}
POST /v2/models/teller/versions/1/generate_stream {"text_input": "What is it?", "image": "IMAGE"}
POST /v1/models/classifier:explain {"instances": [{"image": {"b64": "IMAGE"}}], "parameters": {"samples": 16}}
"""


def cases(protocols: Sequence[str] = ()) -> Sequence[tuple[str, Request]]:
    """Return the cases of some or all protocols with their names, in a fixed order."""
    return [case for case in _all_cases() if not protocols or case[1].protocol in protocols]


@cache
def _all_cases() -> Sequence[tuple[str, Request]]:
    golden = list(golden_cases())
    routes = [(f"route/{' '.join(line.split(' ')[:2])}", _route(line)) for line in _ROUTES.strip().splitlines()]
    grpc_calls = [case for name, request in golden for case in _grpc_calls(name, request)]
    return [*golden, *routes, *_binary(golden), *grpc_calls, *_other_calls()]


def golden_cases() -> Iterator[tuple[str, Http]]:
    """Yield the requests of fixtures/wire with their names, `<protocol>/<case>`."""
    for file in sorted(WIRE.glob("*/*/case.toml")):
        folder = file.parent
        settings = tomllib.loads(file.read_text())
        parts = [path.read_bytes() for path in sorted(folder.glob("request.*"), reverse=True)]
        headers = [_HOST, *((k.encode(), v.encode()) for k, v in settings.get("headers", {}).items())]
        if "content_type" in settings:
            headers.append((b"content-type", settings["content_type"].encode()))
        protocol = folder.parent.name
        head, target = parts[0] if parts else b"", settings["path"]
        if protocol == "grps":
            head, target = _with_model_name(head, target, settings)
        yield (
            f"{protocol}/{folder.name}",
            Http(
                protocol=protocol,
                port="tensorflow-serving" if protocol == "tensorflow-serving" else "http",
                method=settings["method"].encode(),
                target=target.encode(),
                headers=tuple(headers),
                head=head,
                tail=b"".join(parts[1:]),
                header_length=b"true" if len(parts) > 1 else None,
            ),
        )


def _with_model_name(head: bytes, target: str, settings: dict[str, Any]) -> tuple[bytes, str]:
    """Add the model name, because GRPS cases use the default model."""
    if "/infer/predict" not in target or "model=" in target:
        return head, target
    if settings.get("content_type") != "application/json":
        return head, f"{target}{'&' if '?' in target else '?'}model={settings['models'][0]}"
    try:
        return json.dumps({"model": settings["models"][0], **json.loads(head)}).encode(), target
    except ValueError:
        return head, target


def _route(line: str) -> Http:
    method, path, *remaining = line.replace("SPARE", SPARE).split(" ", 2)
    body = "".join(remaining).replace("IMAGE", encode_sample("PNG", base64=True))
    return Http(
        protocol="routes",
        method=method.encode(),
        target=path.encode(),
        headers=(_HOST, _JSON) if body else (_HOST,),
        head=body.encode(),
    )


def _inputs(request: Http) -> list[dict[str, Any]] | None:
    """Return the tensors of a V2 request; None if they cannot be packed."""
    if not request.protocol.endswith("kserve-v2") or request.tail:
        return None
    try:
        return [tensor for tensor in json.loads(request.head)["inputs"] if _pack_tensor(tensor) or True]
    except (ValueError, TypeError, KeyError):
        return None


def _pack_tensor(tensor: dict[str, Any]) -> bytes:
    if tensor["datatype"] == "BYTES":
        elements = [text.encode() for text in tensor["data"]]
        return b"".join(struct.pack("<I", len(element)) + element for element in elements)
    return np.array(tensor["data"], Datatype(tensor["datatype"]).dtype).tobytes()


def _binary(golden: Sequence[tuple[str, Http]]) -> Iterator[tuple[str, Http]]:
    """Yield the golden V2 cases with binary inputs and outputs."""
    for name, request in golden:
        if request.protocol != "kserve-v2" or (inputs := _inputs(request)) is None:
            continue
        data = [_pack_tensor(tensor) for tensor in inputs]
        specs = [
            {k: v for k, v in tensor.items() if k != "data"} | {"parameters": {"binary_data_size": len(block)}}
            for tensor, block in zip(inputs, data, strict=True)
        ]
        body = {**json.loads(request.head), "inputs": specs, "parameters": {"binary_data_output": True}}
        yield (
            f"{name}-binary",
            Http(
                protocol="kserve-v2-binary", method=b"POST", target=request.target, header_length=b"true",
                headers=(_HOST, (b"content-type", b"application/octet-stream")),
                head=json.dumps(body).encode(), tail=b"".join(data),
            ),
        )  # fmt: skip


def _grpc_calls(name: str, request: Http) -> Iterator[tuple[str, Call]]:
    """Yield the same request over gRPC, if gRPC can express it."""
    if request.protocol == "kserve-v2" and (inputs := _inputs(request)) is not None:
        for raw in (False, True):
            try:
                data = _infer_message(request.target.split(b"/")[3].decode(), inputs, raw=raw)
            except (TypeError, ValueError):  # Protobuf cannot represent it.
                continue
            suffix = "-raw" if raw else ""
            yield f"{name}-grpc{suffix}", _v2("ModelInfer", data)
            yield f"{name}-grpc-stream{suffix}", _v2("ModelStreamInfer", data, data)
    elif request.protocol == "grps" and request.target.startswith(b"/grps/v1/infer/predict"):
        if (b"content-type", b"application/json") not in request.headers:
            message: Message = message_class("grps.protos.v1.GrpsMessage")(model="detector", bin_data=request.head)
        else:
            try:
                message = json_format.Parse(request.head, message_class("grps.protos.v1.GrpsMessage")())
            except (json_format.ParseError, UnicodeDecodeError):
                return
        yield f"{name}-grpc", _grps("Predict", message)
        yield f"{name}-grpc-streaming", _grps("PredictStreaming", message)


def _infer_message(model: str, inputs: Sequence[dict[str, Any]], *, raw: bool) -> Message:
    message = message_class("inference.ModelInferRequest")(model_name=model, id="golden")
    for source in inputs:
        tensor = message.inputs.add(name=source["name"], datatype=source["datatype"], shape=source["shape"])
        for key, value in source.get("parameters", {}).items():
            kind = {bool: "bool_param", int: "int64_param", float: "double_param"}.get(type(value), "string_param")
            setattr(tensor.parameters[key], kind, value if kind != "string_param" else str(value))
        if raw:
            message.raw_input_contents.append(_pack_tensor(source))
        elif (field := _CONTENTS_FIELDS.get(source["datatype"])) is not None:
            values = [
                value.encode() if isinstance(value, str) else value for value in np.ravel(source["data"]).tolist()
            ]
            getattr(tensor.contents, field).extend(values)
    return message


def _other_calls() -> Iterator[tuple[str, Call]]:
    for method in ("ServerLive", "ServerReady", "ServerMetadata"):
        yield f"grpc/{method}", _v2(method, message_class(f"inference.{method}Request")())
    for method in ("ModelReady", "ModelMetadata", "ModelStatistics"):
        yield f"grpc/{method}", _v2(method, message_class(f"inference.{method}Request")(name="detector", version="1"))
    yield "grpc/RepositoryIndex", _v2("RepositoryIndex", message_class("inference.RepositoryIndexRequest")(ready=True))
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
        yield f"grpc/{method}", _v2(method, message_class(f"inference.{method}Request")(model_name=SPARE))
    detection = message_class("inference.ModelInferRequest")(model_name="detector", id="picture")
    tensor = detection.inputs.add(name="image", datatype="BYTES", shape=[1])
    tensor.parameters["score_threshold"].double_param = 0.2
    tensor.contents.bytes_contents.append(encode_sample("PNG"))
    yield "grpc/picture", _v2("ModelInfer", detection)
    message = message_class("grps.protos.v1.GrpsMessage")
    for method in ("CheckLiveness", "CheckReadiness", "ServerMetadata", "Online"):
        yield f"grpc/{method}", _grps(method, message())
    yield "grpc/ModelMetadata", _grps("ModelMetadata", message(str_data="detector"))
    yield "grpc/bin_data", _grps("Predict", message(model="classifier", bin_data=encode_sample("JPEG")))


def _v2(method: str, *messages: Message) -> Call:
    streams = (True, True) if method == "ModelStreamInfer" else (False, False)
    data = tuple(message.SerializeToString(deterministic=True) for message in messages)
    return Call(protocol="kserve-v2-grpc", method=f"/{INFERENCE.full_name}/{method}", messages=data, streams=streams)


def _grps(method: str, message: Message) -> Call:
    data = message.SerializeToString(deterministic=True)
    return Call(
        protocol="grps-grpc",
        method=f"/{GRPS.full_name}/{method}",
        messages=(data,),
        streams=(False, method == "PredictStreaming"),
    )
