"""List the protocols that an engine can be checked against."""

from collections.abc import Sequence

from app.plugins.conformance import v1
from app.plugins.conformance.chariot import coordinates, envelope, inputs, items, responses, v2
from app.plugins.conformance.chariot.applicability import expect_image_model
from app.plugins.conformance.check import Protocol, renamed
from app.plugins.conformance.open_inference import rest as open_inference
from app.plugins.conformance.open_inference import rpc as open_inference_grpc

_CHARIOT_V2_KSERVE = (
    *responses.CHECKS,
    *(renamed(check, "CV2K") for check in (*items.CHECKS, *coordinates.CHECKS)),
    *inputs.CHECKS,
)

PROTOCOLS: Sequence[Protocol] = (
    Protocol("chariot-v2-kserve", _CHARIOT_V2_KSERVE, envelope.IMAGES, check_model=expect_image_model),
    Protocol("chariot-v2", v2.CHECKS, v2.IMAGES, check_model=expect_image_model),
    Protocol("v2", open_inference.CHECKS),
    Protocol("v2-grpc", open_inference_grpc.CHECKS, rpc=True),
    Protocol("v1", v1.CHECKS),
)
