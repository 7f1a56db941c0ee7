"""Chariot's protocol chariot-v2-kserve."""

from app.clients.kserve_v2 import image_request, records_of
from app.clients.protocol import HttpClientProtocol


def infer_path(model: str) -> str:
    """Return the inference path of a Chariot id, percent-encoded, or of the only model."""
    return f"/v2/models/m-{model.lower().removeprefix('m-')}/infer" if model else "/infer"


PROTOCOL = HttpClientProtocol(
    name="chariot-v2-kserve", path=infer_path, request=image_request, records=records_of, needs_model=False
)
