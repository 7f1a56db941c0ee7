"""Check GRPS over gRPC."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from app.conformance.calls import Call, call, only_answer
from app.conformance.clause import Clause, FaultError, Level, UntestedError
from app.conformance.grps.messages import (
    REFUSED,
    UNKNOWN,
    asked,
    bare_name,
    data_of,
    expect_description,
    expect_failure,
    expect_success,
    expect_tensors,
    tensors_asked,
)
from app.conformance.messages import GRPS, message
from app.conformance.probe import Probe
from app.conformance.quoting import brief

__all__ = ("CLAUSES",)


def _call(probe: Probe, method: str, body: Mapping[str, Any] | None = None, *, fresh: bool = False) -> Call:
    try:
        request = ParseDict(dict(body or {}), message("grps.protos.v1.GrpsMessage"))
    except ParseError as error:
        raise UntestedError(f"--request is not a GrpsMessage in protobuf's JSON: {error}") from None
    return call(probe, GRPS, method, request, fresh=fresh)


def _plain(answer: Any) -> dict[str, Any]:
    return MessageToDict(answer, preserving_proto_field_name=True)


def _message(made: Call) -> dict[str, Any]:
    """Return the message of a response. The status of a GRPS call is OK even if the message reports a failure."""
    return _plain(only_answer(made))


def _succeeds(made: Call) -> bool:
    try:
        expect_success(_message(made))
    except FaultError:
        return False
    return True


def _success(made: Call) -> dict[str, Any]:
    found = _message(made)
    expect_success(found)
    return found


def _health(probe: Probe, method: str) -> Call:
    return _call(probe, method, fresh=True)


def _live(probe: Probe) -> None:
    _success(_health(probe, "CheckLiveness"))


def _online(probe: Probe) -> None:
    was = _succeeds(_health(probe, "CheckReadiness"))
    try:
        _success(_health(probe, "Online"))
        _success(_health(probe, "CheckReadiness"))
    finally:
        _restore(probe, online=was)


def _offline(probe: Probe) -> None:
    was = _succeeds(_health(probe, "CheckReadiness"))
    try:
        _success(_health(probe, "Offline"))
        expect_failure(_message(_health(probe, "CheckReadiness")))
    finally:
        _restore(probe, online=was)


def _restore(probe: Probe, *, online: bool) -> None:
    shown = list(probe.exchanges)
    _health(probe, "Online" if online else "Offline")
    probe.exchanges[:] = shown


def _server_metadata(probe: Probe) -> None:
    expect_description(_message(_call(probe, "ServerMetadata")))


def _model_metadata(probe: Probe) -> None:
    expect_description(_success(_call(probe, "ModelMetadata", {"str_data": bare_name(probe)})))


def _unknown_metadata(probe: Probe) -> None:
    expect_failure(_message(_call(probe, "ModelMetadata", {"str_data": UNKNOWN})))


def _unnamed_metadata(probe: Probe) -> None:
    expect_failure(_message(_call(probe, "ModelMetadata")))


def _answered(probe: Probe) -> tuple[Mapping[str, Any], dict[str, Any]]:
    for body in asked(probe.target):
        made = _call(probe, "Predict", body)
        if _succeeds(made):
            return body, _message(made)
    raise UntestedError(REFUSED)


def _predicts(probe: Probe) -> None:
    for body in asked(probe.target):
        found = _message(_call(probe, "Predict", body))
        status = found.get("status", {})
        if status.get("status") != "FAILURE":
            expect_success(found)
            return
        expect_failure(found)
    raise UntestedError(REFUSED)


def _data(probe: Probe) -> None:
    _, found = _answered(probe)
    if not data_of(found):
        raise FaultError(f"Expected data, got {brief(found)}")


def _tensors(probe: Probe) -> None:
    for body in tensors_asked(probe.target):
        made = _call(probe, "Predict", body)
        if _succeeds(made):
            expect_tensors(_message(made))
            return
    raise UntestedError(REFUSED)


def _unknown_asked(probe: Probe) -> dict[str, Any]:
    sent, _ = _answered(probe)
    return _message(_call(probe, "Predict", {**sent, "model": UNKNOWN}))


def _unknown_model(probe: Probe) -> None:
    expect_failure(_unknown_asked(probe))


def _unknown_model_code(probe: Probe) -> None:
    expect_failure(_unknown_asked(probe), 404)


def _reasons(probe: Probe) -> None:
    for found in (_unknown_asked(probe), _message(_call(probe, "ModelMetadata", {"str_data": UNKNOWN}))):
        status = found.get("status", {})
        if status.get("status") == "FAILURE" and not status.get("msg"):
            raise FaultError(f"Expected a text in msg, got {brief(status)}")


def _streams(probe: Probe) -> None:
    sent, _ = _answered(probe)
    made = _call(probe, "PredictStreaming", sent)
    if made.unreadable or not made.ok:
        only_answer(made)
    messages = [_plain(answer) for answer in made.answers]
    if not messages:
        raise UntestedError("The model streams nothing")
    for found in messages:
        if found.get("status", {}).get("status") == "FAILURE" or not (data_of(found) or "status" in found):
            raise FaultError(f"Expected messages of data or success, got {brief(found)}")


def _failing_stream(probe: Probe) -> None:
    sent, _ = _answered(probe)
    made = _call(probe, "PredictStreaming", {**sent, "model": UNKNOWN})
    if made.unreadable or not made.ok:
        only_answer(made)
    if not made.answers:
        raise FaultError("Expected a message of FAILURE, got none")
    expect_failure(_plain(made.answers[-1]))


_PAGE = "GRPS, interface page"
_PROTO = "GRPS, grps.proto"
_BOTH = "GRPS's Python and C++ servers"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PREDICTS = ("GRPSG-005",)

CLAUSES = (
    Clause("GRPSG-001", _MUST, "CheckLiveness reports 200 and SUCCESS.", f"{_PAGE}, health", _live),
    Clause("GRPSG-002", _MUST, "After Online, CheckReadiness reports 200 and SUCCESS.", f"{_PAGE}, health", _online,
           requires=("GRPSG-001",)),
    Clause("GRPSG-003", _MUST, "After Offline, CheckReadiness reports FAILURE.", _BOTH, _offline,
           requires=("GRPSG-001", "GRPSG-002")),
    Clause("GRPSG-004", _MUST, "ServerMetadata describes the server in YAML.", f"{_PAGE}, metadata", _server_metadata),
    Clause("GRPSG-005", _MUST, "Predict is OK, and reports 200 and SUCCESS, or FAILURE and another code.",
           f"{_PAGE}, predict; {_BOTH}", _predicts),
    Clause("GRPSG-006", _MUST, "A successful answer has data.", f"{_PROTO}, data_oneof", _data, requires=_PREDICTS),
    Clause("GRPSG-007", _MUST, "A tensor's elements are in the field of its dtype, and their number matches its shape.",
           f"{_PROTO}, GenericTensor", _tensors, requires=_PREDICTS),
    Clause("GRPSG-008", _MUST, "An unknown model is a failure of the message, and the call is OK.", _BOTH,
           _unknown_model, requires=_PREDICTS),
    Clause("GRPSG-009", _SHOULD, "The code for an unknown model is 404.",
           "GRPS's C++ server; the Python server returns 500",
           _unknown_model_code, requires=("GRPSG-008",)),
    Clause("GRPSG-010", _MUST, "ModelMetadata describes a model, by its bare name, in YAML.", f"{_PAGE}, metadata",
           _model_metadata),
    Clause("GRPSG-011", _MUST, "A metadata request for an unknown model is a failure.", _BOTH, _unknown_metadata),
    Clause("GRPSG-012", _MUST, "A metadata request without a model is a failure.", _BOTH, _unnamed_metadata),
    Clause("GRPSG-013", _MUST, "A failure has the reason in msg.", _BOTH, _reasons, requires=("GRPSG-008",
           "GRPSG-011")),
    Clause("GRPSG-014", _MUST, "PredictStreaming sends messages of data, or of success.", f"{_PAGE}, streaming",
           _streams, requires=_PREDICTS),
    Clause("GRPSG-015", _MUST, "A stream that fails ends with a message of FAILURE, and the call is OK.", _BOTH,
           _failing_stream, requires=("GRPSG-008", "GRPSG-014")),
)  # fmt: skip
