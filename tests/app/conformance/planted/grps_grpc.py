"""Faults in an engine of GRPS over gRPC."""

from collections.abc import Callable
from typing import Any

from app.conformance.messages import message
from tests.app.conformance.engines import Fault, Reply, SpoilCall

_OK, _NOT_FOUND = 0, 5
_SUCCESS, _FAILURE = 1, 2


def said(code: int, flag: int, text: str = "no", **data: Any) -> Any:
    """A message with a status."""
    status = message("grps.protos.v1.Status", code=code, msg=text, status=flag)
    return message("grps.protos.v1.GrpsMessage", status=status, **data)


def answers(method: str, change: Callable[[Any], object]) -> SpoilCall:
    """A fault in every message of a method."""

    def spoil(called: str, _: Any, reply: Reply) -> None:
        if called == method:
            for each in reply.messages:
                change(each)

    return spoil


def instead(method: str, answer: Any, chosen: Callable[[Any], bool] = lambda _: True) -> SpoilCall:
    """Another message of a method, to the requests that are chosen."""

    def spoil(called: str, request: Any, reply: Reply) -> None:
        if called == method and chosen(request):
            reply.become(_OK, answer)

    return spoil


def is_unknown(request: Any) -> bool:
    return "conform-unknown" in request.model + request.str_data


def unknown_call(called: str, request: Any, reply: Reply) -> None:
    """The status of the call tells of a failure, as in other protocols."""
    if called == "Predict" and is_unknown(request):
        reply.become(_NOT_FOUND)


def broken_stream(called: str, request: Any, reply: Reply) -> None:
    if called == "PredictStreaming" and is_unknown(request):
        reply.become(_NOT_FOUND)


def empty(answer: Any) -> None:
    if answer.status.status == _SUCCESS:
        for kind in ("str_data", "gtensors", "gmap", "bin_data"):
            answer.ClearField(kind)


def silent(_: str, request: Any, reply: Reply) -> None:
    for each in reply.messages:
        if each.status.status == _FAILURE:
            each.status.msg = ""


def too_few(answer: Any) -> None:
    for tensor in answer.gtensors.tensors:
        del tensor.flat_float32[:]


def failing_stream(called: str, request: Any, reply: Reply) -> None:
    if called == "PredictStreaming" and not is_unknown(request):
        reply.messages.append(said(500, _FAILURE))


GOOD = said(200, _SUCCESS, "OK", str_data="[]")

SPOILT: dict[str, tuple[str, str, SpoilCall]] = {
    "live without a flag": ("detector", "GRPSG-001", answers("CheckLiveness", lambda a: a.status.ClearField("status"))),
    "never ready": ("detector", "GRPSG-002", instead("CheckReadiness", said(503, _FAILURE))),
    "always ready": ("detector", "GRPSG-003", instead("CheckReadiness", GOOD)),
    "no YAML": ("detector", "GRPSG-004", answers("ServerMetadata", lambda a: setattr(a, "str_data", "a: [b: c"))),
    "no status": ("detector", "GRPSG-005", answers("Predict", lambda a: a.ClearField("status"))),
    "success without data": ("detector", "GRPSG-006", answers("Predict", empty)),
    "too few elements": ("half_plus_two", "GRPSG-007", answers("Predict", too_few)),
    "failures of the call": ("detector", "GRPSG-008", unknown_call),
    "unknown models are 500": ("detector", "GRPSG-009", instead("Predict", said(500, _FAILURE), is_unknown)),
    "no YAML of a model": ("detector", "GRPSG-010", answers("ModelMetadata", lambda a: setattr(a, "str_data", "["))),
    "metadata of anything": ("detector", "GRPSG-011", instead("ModelMetadata", GOOD, is_unknown)),
    "metadata of nothing": ("detector", "GRPSG-012", instead("ModelMetadata", GOOD, lambda r: not r.str_data)),
    "without a word": ("detector", "GRPSG-013", silent),
    "a stream that fails": ("detector", "GRPSG-014", failing_stream),
    "a stream that breaks off": ("detector", "GRPSG-015", broken_stream),
}
"""The model that an answer is spoilt of, the clause that names it, and how."""

FAULTS = {
    name: Fault(protocol="grps-grpc", model=model, clause=clause, call=spoil)
    for name, (model, clause, spoil) in SPOILT.items()
}
