"""Deliberate faults in an engine of GRPS over gRPC."""

from typing import Any

from app.plugins.grps.proto import message_class
from tests.plugins.conformance.deliberate_faults.spoiling import change_messages, replace_reply
from tests.plugins.conformance.engines import CallFaults, Reply, faults_of

_OK, _NOT_FOUND = 0, 5
_SUCCESS, _FAILURE = 1, 2


def status_message(code: int, flag: int, text: str = "no", **data: Any) -> Any:
    status = message_class("grps.protos.v1.Status")(code=code, msg=text, status=flag)
    return message_class("grps.protos.v1.GrpsMessage")(status=status, **data)


def is_unknown(request: Any) -> bool:
    return "conform-unknown" in request.model + request.str_data


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
    "never ready": ("GRPSG-S02", replace_reply("CheckReadiness", lambda _: True, _OK, status_message(503, _FAILURE))),
    "always ready": ("GRPSG-S03", replace_reply("CheckReadiness", lambda _: True, _OK, GOOD)),
    "no YAML": ("GRPSG-S04", change_messages("ServerMetadata", lambda a: setattr(a, "str_data", "a: [b: c"))),
    "no status": ("GRPSG-S05", change_messages("Predict", lambda a: a.ClearField("status"))),
    "success without data": ("GRPSG-S06", change_messages("Predict", without_data)),
    "too few elements": ("GRPSG-S07", change_messages("Predict", too_few), "half_plus_two"),
    "failure as status of the call": ("GRPSG-S08", replace_reply("Predict", is_unknown, _NOT_FOUND)),
    "unknown models are 500": ("GRPSG-S09",
        replace_reply("Predict", is_unknown, _OK, status_message(500, _FAILURE))),
    "no YAML of a model": ("GRPSG-S10", change_messages("ModelMetadata", lambda a: setattr(a, "str_data", "["))),
    "metadata of anything": ("GRPSG-S11", replace_reply("ModelMetadata", is_unknown, _OK, GOOD)),
    "metadata of nothing": ("GRPSG-012", replace_reply("ModelMetadata", lambda r: not r.str_data, _OK, GOOD)),
    "errors without a message": ("GRPSG-013", without_error_text),
    "a stream that fails": ("GRPSG-014", failing_stream),
    "a stream that breaks off": ("GRPSG-015", replace_reply("PredictStreaming", is_unknown, _NOT_FOUND)),
}  # fmt: skip
FAULTS = faults_of("grps-grpc", "detector", CALL_FAULTS, "change_call")
