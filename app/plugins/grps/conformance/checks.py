"""Check GRPS over HTTP and over gRPC."""

import re
from typing import Any

import numpy as np

from app.plugins.conformance.check import (
    MUST,
    SHOULD,
    Check,
    NotApplicableError,
    Protocol,
    expect,
    expect_same,
    renamed,
)
from app.plugins.conformance.client.exchange import Exchange, InconclusiveError, quote
from app.plugins.conformance.client.probe import Probe
from app.plugins.conformance.sample_images import SAMPLE_IMAGES
from app.plugins.conformance.tensors import is_object
from app.plugins.grps.conformance import messages as grps


def _readiness_after(probe: Probe, method: str) -> Exchange:
    """Return the readiness response after the engine is set online or offline, and restore the previous state."""
    before = after = grps.call_method(probe, "CheckReadiness")
    try:
        grps.success(grps.call_method(probe, method))
        after = grps.call_method(probe, "CheckReadiness")
        return after
    finally:
        # A reason that Online does not change is not the flag, but for example a model that is not loaded.
        was_online = grps.succeeds(before) or (method == "Online" and after.body == before.body)
        exchanges = list(probe.exchanges)
        grps.call_method(probe, "Online" if was_online else "Offline")
        probe.exchanges[:] = exchanges


def _request_metadata(probe: Probe, name: str) -> Exchange:
    return grps.call_method(probe, "ModelMetadata", {"str_data": name})


def _request_unknown_model(probe: Probe) -> Exchange:
    """Return the response to an accepted message with an unknown model."""
    sent, _ = grps.first_success(probe)
    return grps.predict(probe, {**sent, "model": grps.UNKNOWN})


def _predicts(probe: Probe) -> None:
    """Check that a message succeeds, and that the messages before it report failures."""
    for message in grps.request_messages(probe):
        exchange = grps.predict(probe, message)
        if grps.succeeds(exchange):
            return
        grps.failure(exchange)
    raise InconclusiveError(grps.REFUSED)


def _one_kind(probe: Probe) -> None:
    _, message = grps.example(probe)
    expect(len(kinds := grps.data_of(message)) == 1, "one kind of data", list(kinds))


def _content_type(probe: Probe) -> None:
    grps.example(probe)
    for exchange in (probe.exchanges[-1], grps.call_method(probe, "CheckLiveness")):
        exchange.expect_content_type()


def _by_number(probe: Probe) -> None:
    sent, message = grps.example(probe, grps.tensor_messages(probe))
    again = grps.success(grps.predict(probe, grps.with_dtype_numbers(sent)))
    expect_same(grps.data_of(again), grps.data_of(message))


def _ndarray(probe: Probe) -> None:
    numbers = {**grps.model_field(probe), **grps.tensor_message("DT_FLOAT32", [2], [1, 2])}
    if not grps.succeeds(grps.predict(probe, numbers)):
        raise NotApplicableError("About models that accept one row of numbers")
    _, message = grps.example(probe, [numbers])
    got = grps.success(grps.predict(probe, {**grps.model_field(probe), "ndarray": [1, 2]}))
    expect_same(grps.data_of(got), grps.data_of(message))


def _return_ndarray(probe: Probe) -> None:
    sent, message = grps.example(probe, grps.tensor_messages(probe))
    tensors = grps.tensors_in(message)
    if len(tensors) != 1 or tensors[0].get("dtype") not in ("DT_FLOAT32", 7):
        raise NotApplicableError("About models that answer with one tensor of DT_FLOAT32")
    got = grps.success(grps.predict(probe, sent, **{"return-ndarray": "true"})).get("ndarray")
    elements = np.array(tensors[0].get("flat_float32", []), object)
    expect_same(got, elements.reshape(tensors[0].get("shape", [])).tolist())


def _no_ndarray(probe: Probe) -> None:
    sent, message = grps.example(probe)
    if "gtensors" in message:
        raise NotApplicableError("About models that do not answer with tensors")
    grps.failure(grps.predict(probe, sent, **{"return-ndarray": "true"}))


def _bytes(probe: Probe) -> None:
    grps.first_success(probe)
    for body in (SAMPLE_IMAGES[0].data, b"hello grps"):
        exchange = grps.post_bytes(probe, body, grps.BYTES)
        if grps.succeeds(exchange):
            return
        is_rejected = exchange.status in (405, 415) or re.search(rb"content.type", exchange.body, re.IGNORECASE)
        expect(not is_rejected, "bytes to be accepted", exchange.body)
    raise InconclusiveError(f"The model accepts neither an image nor a text: {quote(probe.exchanges[-1].body)}")


def _model_in_query(probe: Probe) -> None:
    sent, _ = grps.first_success(probe)
    unnamed = {name: value for name, value in sent.items() if name != "model"}
    grps.failure(grps.predict(probe, unnamed, model=grps.UNKNOWN))


def _body_before_query(probe: Probe) -> None:
    grps.bare_name(probe)  # raises without a model name
    sent, _ = grps.first_success(probe)
    got = grps.predict(probe, sent, model=grps.UNKNOWN)
    expect(grps.succeeds(got), "the model of the message", got.body)


def _not_json(probe: Probe) -> Exchange:
    return grps.post_bytes(probe, b'{"str_data": ')


def _predict_nothing(probe: Probe) -> Exchange:
    return grps.predict(probe, {**grps.model_field(probe), "conform_unknown": 1})


def _http_status(probe: Probe) -> None:
    for exchange in (_request_unknown_model(probe), _predict_nothing(probe)):
        status = exchange.object().get("status")
        code = status.get("code") if is_object(status) else None
        expect_same(exchange.status, code, f"HTTP status {quote(code)}, which is the code")


def _http_stream(probe: Probe) -> None:
    sent, _ = grps.example(probe)
    exchange = grps.predict(probe, sent, streaming="true")
    if not exchange.ok:
        raise InconclusiveError(f"The engine does not stream: {exchange.status} {quote(exchange.body)}")
    messages = grps.split_messages(exchange.body)
    if not messages:
        raise InconclusiveError("The model streams nothing")
    for message in messages:
        grps.expect_success(message)


def _streamed_ndarray(probe: Probe) -> None:
    sent, _ = grps.first_success(probe)
    grps.failure(grps.predict(probe, sent, **{"streaming": "true", "return-ndarray": "true"}))


def _stream(probe: Probe, **fields: str) -> list[dict[str, Any]]:
    """Return the messages streamed over gRPC for an accepted message with other `fields`."""
    sent, _ = grps.first_success(probe)
    exchange = grps.call_method(probe, "PredictStreaming", {**sent, **fields})
    expect(exchange.ok, "OK", exchange.code)
    return grps.split_messages(exchange.body)


def _grpc_stream(probe: Probe) -> None:
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
_BOTH = "GRPS's Python and C++ servers"
_PYTHON = "GRPS's Python server; the C++ server does not"
_HTTP_PREDICTS, _GRPC_PREDICTS = ("GRPS-S05",), ("GRPSG-S05",)

_SHARED = (
    Check("S01", MUST, "Liveness is 200 and SUCCESS.", f"{_PAGE}, health",
          lambda probe: grps.success(grps.call_method(probe, "CheckLiveness"))),
    Check("S02", MUST, "After Online, readiness is 200 and SUCCESS.", f"{_PAGE}, health",
          lambda probe: grps.success(_readiness_after(probe, "Online")), requires=("S01",)),
    Check("S03", MUST, "After Offline, readiness is FAILURE.", _BOTH,
          lambda probe: grps.failure(_readiness_after(probe, "Offline")), requires=("S02",)),
    Check("S04", MUST, "The metadata of the server describes it in YAML.", f"{_PAGE}, metadata",
          lambda probe: grps.expect_description(grps.call_method(probe, "ServerMetadata").object())),
    Check("S05", MUST, "Predict reports 200 and SUCCESS or returns bytes, or reports FAILURE and another code.",
          f"{_PAGE}, predict; {_BOTH}", _predicts),
    Check("S06", MUST, "An answer holds one kind of data.", f"{_PAGE}, data_oneof", _one_kind, requires=("S05",)),
    Check("S07", MUST, "A tensor's elements are in the field of its dtype, and their number matches its shape.",
          f"{_PAGE}, GenericTensor",
          lambda probe: grps.expect_tensors(grps.example(probe, grps.tensor_messages(probe))[1]), requires=("S05",)),
    Check("S08", MUST, "An unknown model is a failure of the message.", _BOTH,
          lambda probe: grps.failure(_request_unknown_model(probe)), requires=("S05",)),
    Check("S09", SHOULD, "The code for an unknown model is 404.", "GRPS's C++ server; the Python server returns 500",
          lambda probe: grps.failure(_request_unknown_model(probe), 404), requires=("S08",)),
    Check("S10", MUST, "The metadata of a model, by its bare name, describes it in YAML.", f"{_PAGE}, metadata",
          lambda probe: grps.expect_description(grps.success(_request_metadata(probe, grps.bare_name(probe))))),
    Check("S11", MUST, "A metadata request for an unknown model is a failure.", _BOTH,
          lambda probe: grps.failure(_request_metadata(probe, grps.UNKNOWN))),
)  # fmt: skip
"""The checks of both transports."""

HTTP_CHECKS = (
    *(renamed(check, "GRPS") for check in _SHARED),
    Check("GRPS-004", SHOULD, "After GET health/offline, the HTTP status of health/ready is 503.", _PYTHON,
          lambda probe: expect_same(_readiness_after(probe, "Offline").status, 503, "HTTP status 503"),
          requires=("GRPS-S03",)),
    Check("GRPS-008", MUST, "Messages have the Content-Type application/json.", f"{_PAGE}: JSON expresses the message",
          _content_type, requires=("GRPS-S01", *_HTTP_PREDICTS)),
    Check("GRPS-010", MUST, "A dtype may be a number or a name.", f"{_PAGE}: enumerations", _by_number,
          requires=("GRPS-S07",)),
    Check("GRPS-011", MUST, "ndarray is read as one tensor of DT_FLOAT32.", f"{_PAGE}, ndarray", _ndarray,
          requires=("GRPS-S07",)),
    Check("GRPS-012", MUST, "With return-ndarray=true, the tensor is returned as nested numbers.", f"{_PAGE}, predict",
          _return_ndarray, requires=("GRPS-S07",)),
    Check("GRPS-013", SHOULD, "return-ndarray=true is a failure if the answer has no tensors.", _BOTH, _no_ndarray,
          requires=_HTTP_PREDICTS),
    Check("GRPS-014", MUST, "A body of application/octet-stream is read as bin_data.", f"{_PAGE}, bin_data", _bytes,
          requires=_HTTP_PREDICTS),
    Check("GRPS-017", MUST, "The query can name the model.", f"{_PAGE}, selecting a model", _model_in_query,
          requires=("GRPS-S08",)),
    Check("GRPS-018", MUST, "The message's model takes precedence over the query's.", f"{_PAGE}, selecting a model",
          _body_before_query, requires=("GRPS-S08",)),
    Check("GRPS-019", MUST, "Invalid JSON is a failure.", _BOTH, lambda probe: grps.failure(_not_json(probe))),
    Check("GRPS-020", SHOULD, "The code for invalid JSON is 400.", "GRPS's C++ server; the Python server returns 500",
          lambda probe: grps.failure(_not_json(probe), 400), requires=("GRPS-019",)),
    Check("GRPS-021", MUST, "A message without data is a failure.", _BOTH,
          lambda probe: grps.failure(_predict_nothing(probe))),
    Check("GRPS-022", MUST, "An empty body is a failure.", _BOTH,
          lambda probe: grps.failure(grps.post_bytes(probe, b""))),
    Check("GRPS-023", MUST, "Other Content-Types are a failure.", _BOTH,
          lambda probe: grps.failure(grps.post_bytes(probe, SAMPLE_IMAGES[0].data, "image/png"))),
    Check("GRPS-024", MUST, "bin_data in JSON is a failure.", f"{_PAGE}, bin_data; {_BOTH}",
          lambda probe: grps.failure(grps.predict(probe, {**grps.model_field(probe), "bin_data": "aGVsbG8="}))),
    Check("GRPS-025", MUST, "A failure has the reason in msg.", _BOTH,
          lambda probe: grps.expect_reasons(_request_unknown_model(probe), _predict_nothing(probe)),
          requires=("GRPS-S08", "GRPS-021")),
    Check("GRPS-026", SHOULD, "The HTTP status equals the code.", f"{_PYTHON}: always 200", _http_status,
          requires=("GRPS-S08", "GRPS-021")),
    Check("GRPS-029", MUST, "With streaming=true, the messages are concatenated, each with 200 and SUCCESS.",
          f"{_PAGE}, streaming", _http_stream, requires=_HTTP_PREDICTS),
    Check("GRPS-030", SHOULD, "streaming=true with return-ndarray=true is a failure.", _BOTH, _streamed_ndarray,
          requires=_HTTP_PREDICTS),
)  # fmt: skip

GRPC_CHECKS = (
    *(renamed(check, "GRPSG") for check in _SHARED),
    Check("GRPSG-012", MUST, "A metadata request without a model is a failure.", _BOTH,
          lambda probe: grps.failure(grps.call_method(probe, "ModelMetadata"))),
    Check("GRPSG-013", MUST, "A failure has the reason in msg.", _BOTH,
          lambda probe: grps.expect_reasons(_request_unknown_model(probe), _request_metadata(probe, grps.UNKNOWN)),
          requires=("GRPSG-S08", "GRPSG-S11")),
    Check("GRPSG-014", MUST, "PredictStreaming sends messages of data, or of success.", f"{_PAGE}, streaming",
          _grpc_stream, requires=_GRPC_PREDICTS),
    Check("GRPSG-015", MUST, "A stream that fails ends with a message of FAILURE, and the call is OK.", _BOTH,
          _failing_stream, requires=("GRPSG-S08", "GRPSG-014")),
)  # fmt: skip

PROTOCOLS = (Protocol("grps", HTTP_CHECKS), Protocol("grps-grpc", GRPC_CHECKS, rpc=True))
