"""The protocols that an engine can be held against."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.conformance import kserve_v1, open_inference_v2, tensorflow_serving
from app.conformance.chariot import v2, v2_kserve
from app.conformance.chariot.envelope import LOOKING
from app.conformance.clause import Clause
from app.conformance.probe import Probe

__all__ = ("PROTOCOLS", "Protocol")


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol, its clauses, and how an engine that speaks it shows what its model does."""

    name: str
    clauses: Sequence[Clause]
    task_type: Callable[[Probe], str | None] | None = None


PROTOCOLS = (
    Protocol("chariot-v2-kserve", v2_kserve.CLAUSES, LOOKING.task_type),
    Protocol("chariot-v2", v2.CLAUSES, v2.LOOKING.task_type),
    Protocol("v2", open_inference_v2.CLAUSES),
    Protocol("v1", kserve_v1.CLAUSES),
    Protocol("tensorflow-serving", tensorflow_serving.CLAUSES),
)
