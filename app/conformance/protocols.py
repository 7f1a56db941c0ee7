"""List the protocols that an engine can be checked against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.conformance import kserve_v1, open_inference_grpc, open_inference_v2, tensorflow_serving
from app.conformance.chariot import v2, v2_kserve
from app.conformance.chariot.envelope import IMAGE_PROBE
from app.conformance.check import Check, Need
from app.conformance.grps import rest, rpc
from app.conformance.probe import Probe

__all__ = ("PROTOCOLS", "Protocol")


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
        needed = {need for check in self.checks for need in check.needed_for}
        return [need for need in Need if need in needed]


PROTOCOLS = (
    Protocol("chariot-v2-kserve", v2_kserve.CHECKS, IMAGE_PROBE.task_type),
    Protocol("chariot-v2", v2.CHECKS, v2.IMAGE_PROBE.task_type),
    Protocol("v2", open_inference_v2.CHECKS),
    Protocol("v2-grpc", open_inference_grpc.CHECKS, rpc=True),
    Protocol("v1", kserve_v1.CHECKS),
    Protocol("tensorflow-serving", tensorflow_serving.CHECKS),
    Protocol("grps", rest.CHECKS),
    Protocol("grps-grpc", rpc.CHECKS, rpc=True),
)
