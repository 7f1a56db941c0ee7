"""Encode one image for one model in each protocol."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from app.plugins.grps.proto import message_class
from tests.benchmarks.serving.load import BenchmarkRequest

CHARIOT = "chariot-v2-kserve, JSON"
RAW_CHARIOT = "chariot-v2, raw body"

_OCTETS = {"Content-Type": "application/octet-stream"}


def chariot(port: int, model: str, image: Path) -> BenchmarkRequest:
    """Return the request that is the baseline for all others."""
    return BenchmarkRequest(port, f"/v2/models/m-{model}/infer", _json_of(_input(_base64(image))))


def raw_chariot(port: int, model: str, image: Path) -> BenchmarkRequest:
    """Return a request for a server with chariot-v2 on Chariot's paths."""
    return BenchmarkRequest(port, f"/v2/models/m-{model}/infer", image.read_bytes(), {"Content-Type": "image/jpeg"})


def encodings(ports: Mapping[str, int], model: str, image: Path) -> dict[str, BenchmarkRequest]:
    """Return the requests of all protocols next to chariot-v2-kserve, by name."""
    data, text = image.read_bytes(), _base64(image)
    element = len(data).to_bytes(4, "little") + data
    head = _json_of({**_input(None), "parameters": {"binary_data_size": len(element)}})
    binary = {**_OCTETS, "Inference-Header-Content-Length": str(len(head))}
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1]}
    message = message_class("inference.ModelInferRequest")(
        model_name=model, inputs=[tensor], raw_input_contents=[element]
    )
    grps = message_class("grps.protos.v1.GrpsMessage")(model=model, bin_data=data)
    http, row = ports["http"], msgspec.json.encode({"instances": [{"b64": text}]})
    return {
        CHARIOT: chariot(http, model, image),
        "KServe V2, JSON": BenchmarkRequest(http, f"/v2/models/{model}/infer", _json_of(_input(text))),
        "KServe V2, binary": BenchmarkRequest(http, f"/v2/models/{model}/infer", head + element, binary),
        "KServe V2, gRPC raw": BenchmarkRequest(
            ports["grpc"], "/inference.GRPCInferenceService/ModelInfer", message.SerializeToString(), grpc=True
        ),
        "KServe V1, JSON b64": BenchmarkRequest(http, f"/v1/models/{model}:predict", row),
        "TensorFlow Serving, JSON b64": BenchmarkRequest(
            ports["tensorflow_serving"], f"/v1/models/{model}:predict", row
        ),
        "GRPS, octet-stream": BenchmarkRequest(http, f"/grps/v1/infer/predict?model={model}", data, _OCTETS),
        "GRPS, gRPC": BenchmarkRequest(
            ports["grpc"], "/grps.protos.v1.GrpsService/Predict", grps.SerializeToString(), grpc=True
        ),
    }


def questions(port: int, model: str, image: Path) -> Mapping[str, BenchmarkRequest]:
    """Return the requests for the same answer to a question about an image, by name. Chariot's is the first."""
    text, question = _base64(image), "What is in the picture?"
    content = [
        {"type": "text", "text": question},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{text}"}},
    ]
    chat: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": content}]}
    path, asked = "/v1/chat/completions", {**_input(text), "parameters": {"prompts": [question]}}
    return {
        CHARIOT: BenchmarkRequest(port, f"/v2/models/m-{model}/infer", _json_of(asked)),
        "OpenAI, chat": BenchmarkRequest(port, path, msgspec.json.encode(chat)),
        "OpenAI, streamed chat": BenchmarkRequest(port, path, msgspec.json.encode({**chat, "stream": True})),
    }


def _base64(image: Path) -> str:
    return base64.b64encode(image.read_bytes()).decode()


def _input(text: str | None) -> dict[str, Any]:
    tensor: dict[str, Any] = {"name": "image", "shape": [1], "datatype": "BYTES"}
    return tensor if text is None else {**tensor, "data": [text]}


def _json_of(tensor: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"inputs": [tensor]})
