"""Check GRPS over gRPC. The checks without an underscore are the same over HTTP."""

from collections.abc import Sequence
from typing import Any, cast

from google.protobuf.json_format import MessageToDict

from app.conformance.check import MUST, SHOULD, Check, InconclusiveError, expect
from app.conformance.client.calls import GrpcCall, first_response
from app.conformance.client.probe import Exchange, Probe
from app.conformance.grps import messages as grps


def health(probe: Probe, method: str) -> Exchange:
    """Call a health method, without reusing an earlier response."""
    return grps.call_method(probe, method, fresh=True)


def live(probe: Probe) -> None:
    """Check that the engine reports that it is live."""
    grps.success(health(probe, "CheckLiveness"))


def online(probe: Probe) -> None:
    """Check that the engine is ready after it is set online."""
    grps.success(readiness_after(probe, "Online"))


def readiness_after(probe: Probe, method: str) -> Exchange:
    """Return the readiness response after the engine is set online or offline, and restore the previous state."""
    was_ready = grps.succeeds(health(probe, "CheckReadiness"))
    try:
        grps.success(health(probe, method))
        return health(probe, "CheckReadiness")
    finally:
        exchanges = list(probe.exchanges)
        health(probe, "Online" if was_ready else "Offline")
        probe.exchanges[:] = exchanges


def not_ready(probe: Probe) -> None:
    """Check that the engine is not ready after it is set offline."""
    grps.failure(readiness_after(probe, "Offline"))


def server_metadata(probe: Probe) -> None:
    """Check that the server's metadata is YAML."""
    grps.expect_description(grps.message_of(grps.call_method(probe, "ServerMetadata")))


def model_metadata(probe: Probe) -> None:
    """Check that the model's metadata, by its bare name, is YAML."""
    grps.expect_description(grps.success(grps.call_method(probe, "ModelMetadata", {"str_data": grps.bare_name(probe)})))


def request_unknown_metadata(probe: Probe) -> Exchange:
    """Return the response to a metadata request for an unknown model."""
    return grps.call_method(probe, "ModelMetadata", {"str_data": grps.UNKNOWN})


def tensors(probe: Probe) -> None:
    """Check the tensors of an answer."""
    _, message = grps.example(probe, grps.tensor_messages(probe))
    grps.expect_tensors(message)


def request_unknown_model(probe: Probe) -> Exchange:
    """Return the response to an accepted message with an unknown model."""
    sent, _ = grps.first_success(probe)
    return grps.predict(probe, {**sent, "model": grps.UNKNOWN})


def predicts(probe: Probe) -> None:
    """Check that a message succeeds, and that the messages before it report failures."""
    for message in grps.request_messages(probe):
        exchange = grps.predict(probe, message)
        if grps.succeeds(exchange):
            return
        grps.failure(exchange)
    raise InconclusiveError(grps.REFUSED)


def one_kind(probe: Probe) -> None:
    """Check that an answer holds one kind of data."""
    _, message = grps.example(probe)
    expect(len(kinds := grps.data_of(message)) == 1, "one kind of data", list(kinds))


def _stream(probe: Probe, **fields: str) -> Sequence[dict[str, Any]]:
    """Return the streamed answers to an accepted message with other `fields`."""
    sent, _ = grps.first_success(probe)
    exchange = cast("GrpcCall", grps.call_method(probe, "PredictStreaming", {**sent, **fields}))
    if exchange.unreadable or not exchange.ok:
        first_response(exchange)  # raises
    return [MessageToDict(answer, preserving_proto_field_name=True) for answer in exchange.answers]


def _streams(probe: Probe) -> None:
    messages = _stream(probe)
    if not messages:
        raise InconclusiveError("The model streams nothing")
    for streamed in messages:
        is_failure = streamed.get("status", {}).get("status") == "FAILURE"
        expect(
            not is_failure and (grps.data_of(streamed) or "status" in streamed), "messages of data or success", streamed
        )


def _failing_stream(probe: Probe) -> None:
    messages = _stream(probe, model=grps.UNKNOWN)
    expect(messages, "a message of FAILURE", messages)
    grps.expect_failure(messages[-1])


_PAGE = "GRPS, interface page"
_PROTO = "GRPS, grps.proto"
_BOTH = "GRPS's Python and C++ servers"
_PREDICTS = ("GRPSG-005",)

CHECKS = (
    Check("GRPSG-001", MUST, "CheckLiveness reports 200 and SUCCESS.", f"{_PAGE}, health", live),
    Check("GRPSG-002", MUST, "After Online, CheckReadiness reports 200 and SUCCESS.", f"{_PAGE}, health", online,
          requires=("GRPSG-001",)),
    Check("GRPSG-003", MUST, "After Offline, CheckReadiness reports FAILURE.", _BOTH, not_ready,
          requires=("GRPSG-002",)),
    Check("GRPSG-004", MUST, "ServerMetadata describes the server in YAML.", f"{_PAGE}, metadata", server_metadata),
    Check("GRPSG-005", MUST, "Predict is OK, and reports 200 and SUCCESS, or FAILURE and another code.",
          f"{_PAGE}, predict; {_BOTH}", predicts),
    Check("GRPSG-006", MUST, "A successful answer has data.", f"{_PROTO}, data_oneof", one_kind, requires=_PREDICTS),
    Check("GRPSG-007", MUST, "A tensor's elements are in the field of its dtype, and their number matches its shape.",
          f"{_PROTO}, GenericTensor", tensors, requires=_PREDICTS),
    Check("GRPSG-008", MUST, "An unknown model is a failure of the message, and the call is OK.", _BOTH,
          lambda probe: grps.failure(request_unknown_model(probe)), requires=_PREDICTS),
    Check("GRPSG-009", SHOULD, "The code for an unknown model is 404.",
          "GRPS's C++ server; the Python server returns 500",
          lambda probe: grps.failure(request_unknown_model(probe), 404), requires=("GRPSG-008",)),
    Check("GRPSG-010", MUST, "ModelMetadata describes a model, by its bare name, in YAML.", f"{_PAGE}, metadata",
          model_metadata),
    Check("GRPSG-011", MUST, "A metadata request for an unknown model is a failure.", _BOTH,
          lambda probe: grps.failure(request_unknown_metadata(probe))),
    Check("GRPSG-012", MUST, "A metadata request without a model is a failure.", _BOTH,
          lambda probe: grps.failure(grps.call_method(probe, "ModelMetadata"))),
    Check("GRPSG-013", MUST, "A failure has the reason in msg.", _BOTH,
          lambda probe: grps.expect_reasons(request_unknown_model(probe), request_unknown_metadata(probe)),
          requires=("GRPSG-008", "GRPSG-011")),
    Check("GRPSG-014", MUST, "PredictStreaming sends messages of data, or of success.", f"{_PAGE}, streaming",
          _streams, requires=_PREDICTS),
    Check("GRPSG-015", MUST, "A stream that fails ends with a message of FAILURE, and the call is OK.", _BOTH,
          _failing_stream, requires=("GRPSG-008", "GRPSG-014")),
)  # fmt: skip
