"""Encode one image for one model in each protocol."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from app.proto import message_class
from tests.benchmarks.serving.load import Shot

__all__ = ("CHARIOT", "RAW_CHARIOT", "chariot", "encodings", "raw_chariot")

CHARIOT = "chariot-v2-kserve, JSON"
RAW_CHARIOT = "chariot-v2, raw body"

_OCTETS = {"Content-Type": "application/octet-stream"}


def chariot(port: int, model: str, picture: Path) -> Shot:
    """The request that all others are compared with."""
    return Shot(port, f"/v2/models/m-{model}/infer", _json_of(_input(_base64(picture))))


def raw_chariot(port: int, model: str, picture: Path) -> Shot:
    """For a server that speaks chariot-v2 on Chariot's paths."""
    return Shot(port, f"/v2/models/m-{model}/infer", picture.read_bytes(), {"Content-Type": "image/jpeg"})


def encodings(ports: Mapping[str, int], model: str, picture: Path) -> Mapping[str, Shot]:
    """The requests of every protocol that answers beside chariot-v2-kserve, by what to call them."""
    data, text = picture.read_bytes(), _base64(picture)
    element = len(data).to_bytes(4, "little") + data
    head = _json_of({**_input(None), "parameters": {"binary_data_size": len(element)}})
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1]}
    message = message_class("inference.ModelInferRequest")(
        model_name=model, inputs=[tensor], raw_input_contents=[element]
    )
    grps = message_class("grps.protos.v1.GrpsMessage")(model=model, bin_data=data)
    http, tensorflow_serving = ports["http"], ports["tensorflow_serving"]
    return {
        CHARIOT: chariot(http, model, picture),
        "KServe V2, JSON": Shot(http, f"/v2/models/{model}/infer", _json_of(_input(text))),
        "KServe V2, binary": Shot(
            http,
            f"/v2/models/{model}/infer",
            head + element,
            {**_OCTETS, "Inference-Header-Content-Length": str(len(head))},
        ),
        "KServe V2, gRPC raw": Shot(
            ports["grpc"],
            "/inference.GRPCInferenceService/ModelInfer",
            message.SerializeToString(),
            grpc=True,
        ),
        "KServe V1, JSON b64": Shot(
            http, f"/v1/models/{model}:predict", msgspec.json.encode({"instances": [{"b64": text}]})
        ),
        "TensorFlow Serving, JSON b64": Shot(
            tensorflow_serving, f"/v1/models/{model}:predict", msgspec.json.encode({"instances": [{"b64": text}]})
        ),
        "GRPS, octet-stream": Shot(http, f"/grps/v1/infer/predict?model={model}", data, _OCTETS),
        "GRPS, gRPC": Shot(ports["grpc"], "/grps.protos.v1.GrpsService/Predict", grps.SerializeToString(), grpc=True),
    }


def _base64(picture: Path) -> str:
    return base64.b64encode(picture.read_bytes()).decode()


def _input(text: str | None) -> dict[str, Any]:
    described: dict[str, Any] = {"name": "image", "shape": [1], "datatype": "BYTES"}
    return described if text is None else {**described, "data": [text]}


def _json_of(described: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"inputs": [described]})
