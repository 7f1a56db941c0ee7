"""List the protocols that an engine can be checked against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.conformance import kserve_v1, open_inference_grpc, open_inference_v2, tensorflow_serving
from app.conformance.chariot import v2, v2_kserve
from app.conformance.chariot.envelope import LOOKING
from app.conformance.clause import Clause, Need
from app.conformance.grps import rest, rpc
from app.conformance.probe import Probe

__all__ = ("PROTOCOLS", "Protocol")


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol with its clauses.

    Args:
        name: the value of `--protocol`.
        clauses: each after those that it requires.
        task_type: detects the task type from responses; None if they do not show it.
        rpc: whether the protocol uses gRPC.
    """

    name: str
    clauses: Sequence[Clause]
    task_type: Callable[[Probe], str | None] | None = None
    rpc: bool = False

    @property
    def needs(self) -> Sequence[Need]:
        """Return the needs that the clauses name."""
        named = {need for clause in self.clauses for need in clause.needed_for}
        return [need for need in Need if need in named]


PROTOCOLS = (
    Protocol("chariot-v2-kserve", v2_kserve.CLAUSES, LOOKING.task_type),
    Protocol("chariot-v2", v2.CLAUSES, v2.LOOKING.task_type),
    Protocol("v2", open_inference_v2.CLAUSES),
    Protocol("v2-grpc", open_inference_grpc.CLAUSES, rpc=True),
    Protocol("v1", kserve_v1.CLAUSES),
    Protocol("tensorflow-serving", tensorflow_serving.CLAUSES),
    Protocol("grps", rest.CLAUSES),
    Protocol("grps-grpc", rpc.CLAUSES, rpc=True),
)
