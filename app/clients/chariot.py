"""Chariot's protocols, chariot-v2-kserve and chariot-v2."""

from app.clients.kserve_v2 import image_request, records_of
from app.clients.protocol import ClientProtocol, encode_base64


def infer_path(model: str) -> str:
    """Return the inference path of a Chariot id, percent-encoded, or of the only model."""
    return f"/v2/models/m-{model.lower().removeprefix('m-')}/infer" if model else "/infer"


CHARIOT_V2_KSERVE = ClientProtocol(
    name="chariot-v2-kserve", path=infer_path, request=image_request, records=records_of, needs_model=False
)
CHARIOT_V2 = ClientProtocol(
    name="chariot-v2",
    path=infer_path,
    request=lambda data, parameters: {"input": encode_base64(data), "parameters": parameters},
    records=lambda answer: answer["output"],
    needs_model=False,
)
