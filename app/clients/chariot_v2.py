"""Chariot's protocol chariot-v2."""

from app.clients.chariot_v2_kserve import infer_path
from app.clients.protocol import HttpClientProtocol, encode_base64

PROTOCOL = HttpClientProtocol(
    name="chariot-v2",
    path=infer_path,
    request=lambda data, parameters: {"input": encode_base64(data), "parameters": parameters},
    records=lambda answer: answer["output"],
    needs_model=False,
)
