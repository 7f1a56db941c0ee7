"""Deliberate faults in an engine of GRPS over gRPC."""

from collections.abc import Callable
from typing import Any

from app.plugins.grps.proto import message_class
from tests.plugins.conformance.deliberate_faults.spoiling import change_messages
from tests.plugins.conformance.engines import CallFault, CallFaults, Reply, call_faults

_OK, _NOT_FOUND = 0, 5
_SUCCESS, _FAILURE = 1, 2


def status_message(code: int, flag: int, text: str = "no", **data: Any) -> Any:
    status = message_class("grps.protos.v1.Status")(code=code, msg=text, status=flag)
    return message_class("grps.protos.v1.GrpsMessage")(status=status, **data)


def replace_message(method: str, answer: Any, matches: Callable[[Any], bool] = lambda _: True) -> CallFault:
    """Replace the message of a method for requests that match."""

    def change_call(called: str, request: Any, reply: Reply) -> None:
        if called == method and matches(request):
            reply.replace(_OK, answer)

    return change_call


def is_unknown(request: Any) -> bool:
    return "conform-unknown" in request.model + request.str_data


def call_error_for_unknown_model(called: str, request: Any, reply: Reply) -> None:
    """Report the failure in the status of the call, as other protocols do."""
    if called == "Predict" and is_unknown(request):
        reply.replace(_NOT_FOUND)


def broken_stream(called: str, request: Any, reply: Reply) -> None:
    if called == "PredictStreaming" and is_unknown(request):
        reply.replace(_NOT_FOUND)


def without_data(answer: Any) -> None:
    if answer.status.status == _SUCCESS:
        for kind in ("str_data", "gtensors", "gmap", "bin_data"):
            answer.ClearField(kind)


def without_error_text(_: str, request: Any, reply: Reply) -> None:
    for answer in reply.messages:
        if answer.status.status == _FAILURE:
            answer.status.msg = ""


def too_few(answer: Any) -> None:
    for tensor in answer.gtensors.tensors:
        del tensor.flat_float32[:]


def failing_stream(called: str, request: Any, reply: Reply) -> None:
    if called == "PredictStreaming" and not is_unknown(request):
        reply.messages.append(status_message(500, _FAILURE))


GOOD = status_message(200, _SUCCESS, "OK", str_data="[]")

CALL_FAULTS: CallFaults = {
    "live without a flag": ("GRPSG-S01", change_messages("CheckLiveness", lambda a: a.status.ClearField("status"))),
    "never ready": ("GRPSG-S02", replace_message("CheckReadiness", status_message(503, _FAILURE))),
    "always ready": ("GRPSG-S03", replace_message("CheckReadiness", GOOD)),
    "no YAML": ("GRPSG-S04", change_messages("ServerMetadata", lambda a: setattr(a, "str_data", "a: [b: c"))),
    "no status": ("GRPSG-S05", change_messages("Predict", lambda a: a.ClearField("status"))),
    "success without data": ("GRPSG-S06", change_messages("Predict", without_data)),
    "too few elements": ("GRPSG-S07", change_messages("Predict", too_few), "half_plus_two"),
    "failure as status of the call": ("GRPSG-S08", call_error_for_unknown_model),
    "unknown models are 500": ("GRPSG-S09", replace_message("Predict", status_message(500, _FAILURE), is_unknown)),
    "no YAML of a model": ("GRPSG-S10", change_messages("ModelMetadata", lambda a: setattr(a, "str_data", "["))),
    "metadata of anything": ("GRPSG-S11", replace_message("ModelMetadata", GOOD, is_unknown)),
    "metadata of nothing": ("GRPSG-012", replace_message("ModelMetadata", GOOD, lambda r: not r.str_data)),
    "errors without a message": ("GRPSG-013", without_error_text),
    "a stream that fails": ("GRPSG-014", failing_stream),
    "a stream that breaks off": ("GRPSG-015", broken_stream),
}
FAULTS = call_faults("grps-grpc", "detector", CALL_FAULTS)
