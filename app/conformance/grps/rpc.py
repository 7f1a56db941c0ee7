"""Check GRPS over gRPC. The checks without an underscore are the same over HTTP."""

from collections.abc import Sequence
from typing import Any, cast

from google.protobuf.json_format import MessageToDict

from app.conformance.check import Check, InconclusiveError, Level, ViolationError, expect, quote
from app.conformance.client.calls import GrpcCall, first_response
from app.conformance.client.probe import Exchange, Probe
from app.conformance.grps.messages import (
    REFUSED,
    UNKNOWN,
    bare_name,
    call_method,
    data_of,
    expect_description,
    expect_failure,
    expect_success,
    expect_tensors,
    failure,
    first_success,
    message_of,
    predict,
    request_messages,
    succeeds,
    success,
    tensor_messages,
)


def health(probe: Probe, method: str) -> Exchange:
    """Call a health method, without reusing an earlier response."""
    return call_method(probe, method, fresh=True)


def live(probe: Probe) -> None:
    """Check that the engine reports that it is live."""
    success(health(probe, "CheckLiveness"))


def online(probe: Probe) -> None:
    """Check that the engine is ready after it is set online."""
    success(readiness_after(probe, "Online"))


def readiness_after(probe: Probe, method: str) -> Exchange:
    """Return the readiness response after the engine is set online or offline, and restore the previous state."""
    was_ready = succeeds(health(probe, "CheckReadiness"))
    try:
        success(health(probe, method))
        return health(probe, "CheckReadiness")
    finally:
        exchanges = list(probe.exchanges)
        health(probe, "Online" if was_ready else "Offline")
        probe.exchanges[:] = exchanges


def not_ready(probe: Probe) -> None:
    """Check that the engine is not ready after it is set offline."""
    failure(readiness_after(probe, "Offline"))


def server_metadata(probe: Probe) -> None:
    """Check that the server's metadata is YAML."""
    expect_description(message_of(call_method(probe, "ServerMetadata")))


def model_metadata(probe: Probe) -> None:
    """Check that the model's metadata, by its bare name, is YAML."""
    expect_description(success(call_method(probe, "ModelMetadata", {"str_data": bare_name(probe)})))


def request_unknown_metadata(probe: Probe) -> Exchange:
    """Return the response to a metadata request for an unknown model."""
    return call_method(probe, "ModelMetadata", {"str_data": UNKNOWN})


def tensors(probe: Probe) -> None:
    """Check the tensors of an answer."""
    _, exchange = first_success(probe, tensor_messages(probe.target))
    expect_tensors(message_of(exchange))


def request_unknown_model(probe: Probe) -> Exchange:
    """Return the response to an accepted message with an unknown model."""
    sent, _ = first_success(probe, request_messages(probe.target))
    return predict(probe, {**sent, "model": UNKNOWN})


def _predicts(probe: Probe) -> None:
    for body in request_messages(probe.target):
        answer = message_of(predict(probe, body))
        status = answer.get("status", {})
        if status.get("status") != "FAILURE":
            expect_success(answer)
            return
        expect_failure(answer)
    raise InconclusiveError(REFUSED)


def _data(probe: Probe) -> None:
    _, exchange = first_success(probe, request_messages(probe.target))
    expect(data_of(answer := message_of(exchange)), "data", answer)


def _reasons(probe: Probe) -> None:
    for exchange in (request_unknown_model(probe), request_unknown_metadata(probe)):
        status = message_of(exchange).get("status", {})
        expect(status.get("status") != "FAILURE" or status.get("msg"), "a text in msg", status)


def _stream(probe: Probe, **fields: str) -> Sequence[dict[str, Any]]:
    """Return the streamed answers to an accepted message with other `fields`."""
    sent, _ = first_success(probe, request_messages(probe.target))
    exchange = cast("GrpcCall", call_method(probe, "PredictStreaming", {**sent, **fields}))
    if exchange.unreadable or not exchange.ok:
        first_response(exchange)
    return [MessageToDict(answer, preserving_proto_field_name=True) for answer in exchange.answers]


def _streams(probe: Probe) -> None:
    messages = _stream(probe)
    if not messages:
        raise InconclusiveError("The model streams nothing")
    for streamed in messages:
        if streamed.get("status", {}).get("status") == "FAILURE" or not (data_of(streamed) or "status" in streamed):
            raise ViolationError(f"Expected messages of data or success, got {quote(streamed)}")


def _failing_stream(probe: Probe) -> None:
    messages = _stream(probe, model=UNKNOWN)
    if not messages:
        raise ViolationError("Expected a message of FAILURE, got none")
    expect_failure(messages[-1])


_PAGE = "GRPS, interface page"
_PROTO = "GRPS, grps.proto"
_BOTH = "GRPS's Python and C++ servers"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PREDICTS = ("GRPSG-005",)

CHECKS = (
    Check("GRPSG-001", _MUST, "CheckLiveness reports 200 and SUCCESS.", f"{_PAGE}, health", live),
    Check("GRPSG-002", _MUST, "After Online, CheckReadiness reports 200 and SUCCESS.", f"{_PAGE}, health", online,
          requires=("GRPSG-001",)),
    Check("GRPSG-003", _MUST, "After Offline, CheckReadiness reports FAILURE.", _BOTH, not_ready,
          requires=("GRPSG-001", "GRPSG-002")),
    Check("GRPSG-004", _MUST, "ServerMetadata describes the server in YAML.", f"{_PAGE}, metadata",
          server_metadata),
    Check("GRPSG-005", _MUST, "Predict is OK, and reports 200 and SUCCESS, or FAILURE and another code.",
          f"{_PAGE}, predict; {_BOTH}", _predicts),
    Check("GRPSG-006", _MUST, "A successful answer has data.", f"{_PROTO}, data_oneof", _data, requires=_PREDICTS),
    Check("GRPSG-007", _MUST, "A tensor's elements are in the field of its dtype, and their number matches its shape.",
          f"{_PROTO}, GenericTensor", tensors, requires=_PREDICTS),
    Check("GRPSG-008", _MUST, "An unknown model is a failure of the message, and the call is OK.", _BOTH,
          lambda probe: failure(request_unknown_model(probe)), requires=_PREDICTS),
    Check("GRPSG-009", _SHOULD, "The code for an unknown model is 404.",
          "GRPS's C++ server; the Python server returns 500",
          lambda probe: failure(request_unknown_model(probe), 404), requires=("GRPSG-008",)),
    Check("GRPSG-010", _MUST, "ModelMetadata describes a model, by its bare name, in YAML.", f"{_PAGE}, metadata",
          model_metadata),
    Check("GRPSG-011", _MUST, "A metadata request for an unknown model is a failure.", _BOTH,
          lambda probe: failure(request_unknown_metadata(probe))),
    Check("GRPSG-012", _MUST, "A metadata request without a model is a failure.", _BOTH,
          lambda probe: failure(call_method(probe, "ModelMetadata"))),
    Check("GRPSG-013", _MUST, "A failure has the reason in msg.", _BOTH, _reasons, requires=("GRPSG-008", "GRPSG-011")),
    Check("GRPSG-014", _MUST, "PredictStreaming sends messages of data, or of success.", f"{_PAGE}, streaming",
          _streams, requires=_PREDICTS),
    Check("GRPSG-015", _MUST, "A stream that fails ends with a message of FAILURE, and the call is OK.", _BOTH,
          _failing_stream, requires=("GRPSG-008", "GRPSG-014")),
)  # fmt: skip
