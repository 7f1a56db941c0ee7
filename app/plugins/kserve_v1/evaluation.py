"""KServe's V1 protocol for `charioteer evaluate`."""

from collections.abc import Mapping
from typing import Any

from app.plugins.evaluation.client_protocols import HttpClientProtocol, encode_base64


def _body(data: bytes, parameters: Mapping[str, object]) -> Mapping[str, Any]:
    return {"json": {"instances": [{"image": {"b64": encode_base64(data)}, "parameters": parameters}]}}


CLIENTS = (
    HttpClientProtocol(
        name="v1",
        path=lambda model: f"/v1/models/{model}:predict",
        request=_body,
        records=lambda answer: answer["predictions"][0],
    ),
)
