"""KServe's V1 protocol."""

from collections.abc import Mapping
from typing import Any

from app.clients.protocol import ClientProtocol, Parameters, encode_base64


def predict_path(model: str) -> str:
    """Return the path of predictions of a model, whose name is percent-encoded."""
    return f"/v1/models/{model}:predict"


def _request(data: bytes, parameters: Parameters) -> Mapping[str, Any]:
    return {"instances": [{"image": {"b64": encode_base64(data)}, "parameters": parameters}]}


PROTOCOL = ClientProtocol(
    name="v1", path=predict_path, request=_request, records=lambda answer: answer["predictions"][0]
)
