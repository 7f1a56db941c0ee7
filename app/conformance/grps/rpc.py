"""Check GRPS over gRPC."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from app.conformance.check import Check, InconclusiveError, Level, ViolationError
from app.conformance.client.calls import GrpcCall, call, first_response
from app.conformance.client.messages import GRPS, message
from app.conformance.client.probe import Probe
from app.conformance.grps.messages import (
    REFUSED,
    UNKNOWN,
    bare_name,
    data_of,
    expect_description,
    expect_failure,
    expect_success,
    expect_tensors,
    request_messages,
    tensor_messages,
)
from app.conformance.quoting import quote

__all__ = ("CHECKS",)


def _call(probe: Probe, method: str, body: Mapping[str, Any] | None = None, *, fresh: bool = False) -> GrpcCall:
    try:
        request = ParseDict(dict(body or {}), message("grps.protos.v1.GrpsMessage"))
    except ParseError as error:
        raise InconclusiveError(f"--request is not a GrpsMessage in protobuf's JSON: {error}") from None
    return call(probe, GRPS, method, request, fresh=fresh)


def _to_dict(answer: Any) -> dict[str, Any]:
    return MessageToDict(answer, preserving_proto_field_name=True)


def _message(exchange: GrpcCall) -> dict[str, Any]:
    """Return the message of a response. The status of a GRPS call is OK even if the message reports a failure."""
    return _to_dict(first_response(exchange))


def _succeeds(exchange: GrpcCall) -> bool:
    try:
        expect_success(_message(exchange))
    except ViolationError:
        return False
    return True


def _success(exchange: GrpcCall) -> dict[str, Any]:
    answer = _message(exchange)
    expect_success(answer)
    return answer


def _health(probe: Probe, method: str) -> GrpcCall:
    return _call(probe, method, fresh=True)


def _live(probe: Probe) -> None:
    _success(_health(probe, "CheckLiveness"))


def _online(probe: Probe) -> None:
    was_ready = _succeeds(_health(probe, "CheckReadiness"))
    try:
        _success(_health(probe, "Online"))
        _success(_health(probe, "CheckReadiness"))
    finally:
        _restore(probe, online=was_ready)


def _offline(probe: Probe) -> None:
    was_ready = _succeeds(_health(probe, "CheckReadiness"))
    try:
        _success(_health(probe, "Offline"))
        expect_failure(_message(_health(probe, "CheckReadiness")))
    finally:
        _restore(probe, online=was_ready)


def _restore(probe: Probe, *, online: bool) -> None:
    exchanges = list(probe.exchanges)
    _health(probe, "Online" if online else "Offline")
    probe.exchanges[:] = exchanges


def _server_metadata(probe: Probe) -> None:
    expect_description(_message(_call(probe, "ServerMetadata")))


def _model_metadata(probe: Probe) -> None:
    expect_description(_success(_call(probe, "ModelMetadata", {"str_data": bare_name(probe)})))


def _unknown_metadata(probe: Probe) -> None:
    expect_failure(_message(_call(probe, "ModelMetadata", {"str_data": UNKNOWN})))


def _unnamed_metadata(probe: Probe) -> None:
    expect_failure(_message(_call(probe, "ModelMetadata")))


def _first_success(probe: Probe) -> tuple[Mapping[str, Any], dict[str, Any]]:
    for body in request_messages(probe.target):
        exchange = _call(probe, "Predict", body)
        if _succeeds(exchange):
            return body, _message(exchange)
    raise InconclusiveError(REFUSED)


def _predicts(probe: Probe) -> None:
    for body in request_messages(probe.target):
        answer = _message(_call(probe, "Predict", body))
        status = answer.get("status", {})
        if status.get("status") != "FAILURE":
            expect_success(answer)
            return
        expect_failure(answer)
    raise InconclusiveError(REFUSED)


def _data(probe: Probe) -> None:
    _, answer = _first_success(probe)
    if not data_of(answer):
        raise ViolationError(f"Expected data, got {quote(answer)}")


def _tensors(probe: Probe) -> None:
    for body in tensor_messages(probe.target):
        exchange = _call(probe, "Predict", body)
        if _succeeds(exchange):
            expect_tensors(_message(exchange))
            return
    raise InconclusiveError(REFUSED)


def _request_unknown_model(probe: Probe) -> dict[str, Any]:
    sent, _ = _first_success(probe)
    return _message(_call(probe, "Predict", {**sent, "model": UNKNOWN}))


def _unknown_model(probe: Probe) -> None:
    expect_failure(_request_unknown_model(probe))


def _unknown_model_code(probe: Probe) -> None:
    expect_failure(_request_unknown_model(probe), 404)


def _reasons(probe: Probe) -> None:
    for answer in (_request_unknown_model(probe), _message(_call(probe, "ModelMetadata", {"str_data": UNKNOWN}))):
        status = answer.get("status", {})
        if status.get("status") == "FAILURE" and not status.get("msg"):
            raise ViolationError(f"Expected a text in msg, got {quote(status)}")


def _streams(probe: Probe) -> None:
    sent, _ = _first_success(probe)
    exchange = _call(probe, "PredictStreaming", sent)
    if exchange.unreadable or not exchange.ok:
        first_response(exchange)
    messages = [_to_dict(answer) for answer in exchange.answers]
    if not messages:
        raise InconclusiveError("The model streams nothing")
    for streamed in messages:
        if streamed.get("status", {}).get("status") == "FAILURE" or not (data_of(streamed) or "status" in streamed):
            raise ViolationError(f"Expected messages of data or success, got {quote(streamed)}")


def _failing_stream(probe: Probe) -> None:
    sent, _ = _first_success(probe)
    exchange = _call(probe, "PredictStreaming", {**sent, "model": UNKNOWN})
    if exchange.unreadable or not exchange.ok:
        first_response(exchange)
    if not exchange.answers:
        raise ViolationError("Expected a message of FAILURE, got none")
    expect_failure(_to_dict(exchange.answers[-1]))


_PAGE = "GRPS, interface page"
_PROTO = "GRPS, grps.proto"
_BOTH = "GRPS's Python and C++ servers"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PREDICTS = ("GRPSG-005",)

CHECKS = (
    Check("GRPSG-001", _MUST, "CheckLiveness reports 200 and SUCCESS.", f"{_PAGE}, health", _live),
    Check("GRPSG-002", _MUST, "After Online, CheckReadiness reports 200 and SUCCESS.", f"{_PAGE}, health", _online,
          requires=("GRPSG-001",)),
    Check("GRPSG-003", _MUST, "After Offline, CheckReadiness reports FAILURE.", _BOTH, _offline,
          requires=("GRPSG-001", "GRPSG-002")),
    Check("GRPSG-004", _MUST, "ServerMetadata describes the server in YAML.", f"{_PAGE}, metadata", _server_metadata),
    Check("GRPSG-005", _MUST, "Predict is OK, and reports 200 and SUCCESS, or FAILURE and another code.",
          f"{_PAGE}, predict; {_BOTH}", _predicts),
    Check("GRPSG-006", _MUST, "A successful answer has data.", f"{_PROTO}, data_oneof", _data, requires=_PREDICTS),
    Check("GRPSG-007", _MUST, "A tensor's elements are in the field of its dtype, and their number matches its shape.",
          f"{_PROTO}, GenericTensor", _tensors, requires=_PREDICTS),
    Check("GRPSG-008", _MUST, "An unknown model is a failure of the message, and the call is OK.", _BOTH,
          _unknown_model, requires=_PREDICTS),
    Check("GRPSG-009", _SHOULD, "The code for an unknown model is 404.",
          "GRPS's C++ server; the Python server returns 500",
          _unknown_model_code, requires=("GRPSG-008",)),
    Check("GRPSG-010", _MUST, "ModelMetadata describes a model, by its bare name, in YAML.", f"{_PAGE}, metadata",
          _model_metadata),
    Check("GRPSG-011", _MUST, "A metadata request for an unknown model is a failure.", _BOTH, _unknown_metadata),
    Check("GRPSG-012", _MUST, "A metadata request without a model is a failure.", _BOTH, _unnamed_metadata),
    Check("GRPSG-013", _MUST, "A failure has the reason in msg.", _BOTH, _reasons, requires=("GRPSG-008",
          "GRPSG-011")),
    Check("GRPSG-014", _MUST, "PredictStreaming sends messages of data, or of success.", f"{_PAGE}, streaming",
          _streams, requires=_PREDICTS),
    Check("GRPSG-015", _MUST, "A stream that fails ends with a message of FAILURE, and the call is OK.", _BOTH,
          _failing_stream, requires=("GRPSG-008", "GRPSG-014")),
)  # fmt: skip
