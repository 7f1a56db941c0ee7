"""List the protocols that an engine can be checked against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.conformance import kserve_v1, openai, tensorflow_serving, tensorflow_serving_grpc
from app.conformance.chariot import coordinates, inputs, items, responses, v2
from app.conformance.chariot.envelope import IMAGE_PROBE
from app.conformance.check import Check, Need, needs_of
from app.conformance.client.probe import Probe
from app.conformance.grps import rest, rpc
from app.conformance.open_inference import rest as open_inference_v2
from app.conformance.open_inference import rpc as open_inference_grpc


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol with its checks.

    Args:
        name: the value of `--protocol`.
        checks: each after those that it requires.
        task_type: detects the task type from responses; None if they do not show it.
        rpc: whether the protocol uses gRPC.
    """

    name: str
    checks: Sequence[Check]
    task_type: Callable[[Probe], str | None] | None = None
    rpc: bool = False

    @property
    def needs(self) -> Sequence[Need]:
        """Return what depends on the checks."""
        return needs_of(self.checks)


_CHARIOT_V2_KSERVE = (
    *responses.CHECKS,
    *(check.bind("CV2K", IMAGE_PROBE) for check in (*items.CHECKS, *coordinates.CHECKS)),
    *inputs.CHECKS,
)

PROTOCOLS = (
    Protocol("chariot-v2-kserve", _CHARIOT_V2_KSERVE, IMAGE_PROBE.task_type),
    Protocol("chariot-v2", v2.CHECKS, v2.IMAGE_PROBE.task_type),
    Protocol("v2", open_inference_v2.CHECKS),
    Protocol("v2-grpc", open_inference_grpc.CHECKS, rpc=True),
    Protocol("v1", kserve_v1.CHECKS),
    Protocol("tensorflow-serving", tensorflow_serving.CHECKS),
    Protocol("tensorflow-serving-grpc", tensorflow_serving_grpc.CHECKS, rpc=True),
    Protocol("openai", openai.CHECKS),
    Protocol("grps", rest.CHECKS),
    Protocol("grps-grpc", rpc.CHECKS, rpc=True),
)


def protocol_named(name: str) -> Protocol:
    """Return a protocol by its name; v1, v2 and v2-grpc are also called kserve-v1, kserve-v2 and kserve-v2-grpc.

    Raises:
        LookupError: there is no such protocol.
    """
    for protocol in PROTOCOLS:
        if protocol.name == name.removeprefix("kserve-"):
            return protocol
    raise LookupError(f"Expected one of {', '.join(protocol.name for protocol in PROTOCOLS)}, got {name}")
