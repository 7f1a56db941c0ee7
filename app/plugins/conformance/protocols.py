"""List the protocols that an engine can be checked against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.plugins.conformance import kserve_v1
from app.plugins.conformance.chariot import coordinates, envelope, inputs, items, responses, v2
from app.plugins.conformance.chariot.applicability import expect_image_model
from app.plugins.conformance.check import Check, Need, renamed
from app.plugins.conformance.client.probe import ImageFormat, Probe
from app.plugins.conformance.open_inference import rest as open_inference
from app.plugins.conformance.open_inference import rpc as open_inference_grpc
from app.plugins.grps.conformance import checks as grps
from app.plugins.openai import conformance as openai
from app.plugins.tensorflow_serving.conformance import rest as tensorflow_serving
from app.plugins.tensorflow_serving.conformance import rpc as tensorflow_serving_grpc


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol with its checks.

    Args:
        name: the value of `--protocol`.
        checks: each after those that it requires.
        images: the format of images; None if the protocol has no items.
        rpc: whether the protocol uses gRPC.
        check_model: raises `NotApplicableError` if the protocol's checks are not for the engine's model.
    """

    name: str
    checks: Sequence[Check]
    images: ImageFormat | None = None
    rpc: bool = False
    check_model: Callable[[Probe], object] = lambda _: None

    @property
    def needs(self) -> Sequence[Need]:
        """Return the features that depend on at least one check."""
        return [need for need in Need if any(need in check.needed_for for check in self.checks)]


_CHARIOT_V2_KSERVE = (
    *responses.CHECKS,
    *(renamed(check, "CV2K") for check in (*items.CHECKS, *coordinates.CHECKS)),
    *inputs.CHECKS,
)

PROTOCOLS = (
    Protocol("chariot-v2-kserve", _CHARIOT_V2_KSERVE, envelope.IMAGES, check_model=expect_image_model),
    Protocol("chariot-v2", v2.CHECKS, v2.IMAGES, check_model=expect_image_model),
    Protocol("v2", open_inference.CHECKS),
    Protocol("v2-grpc", open_inference_grpc.CHECKS, rpc=True),
    Protocol("v1", kserve_v1.CHECKS),
    Protocol("tensorflow-serving", tensorflow_serving.CHECKS),
    Protocol("tensorflow-serving-grpc", tensorflow_serving_grpc.CHECKS, rpc=True),
    Protocol("openai", openai.CHECKS),
    Protocol("grps", grps.HTTP_CHECKS),
    Protocol("grps-grpc", grps.GRPC_CHECKS, rpc=True),
)
