"""Check GRPS over HTTP."""

import json
import re
from typing import Any

import numpy as np

from app.conformance.check import MUST, SHOULD, Check, InconclusiveError, NotApplicableError, expect, quote
from app.conformance.client.probe import Exchange, Probe, decode_object
from app.conformance.grps import messages as grps
from app.conformance.grps import rpc
from app.conformance.sample_images import SAMPLE_IMAGES
from app.conformance.tensors import expect_content_type, is_object


def _content_type(probe: Probe) -> None:
    grps.example(probe)
    for exchange in (probe.exchanges[-1], rpc.health(probe, "CheckLiveness")):
        expect_content_type(exchange)


def _by_number(probe: Probe) -> None:
    sent, message = grps.example(probe, grps.tensor_messages(probe))
    again = grps.success(grps.predict(probe, grps.with_dtype_numbers(sent)))
    _expect_same(grps.data_of(message), grps.data_of(again))


def _expect_same(expected: object, got: object) -> None:
    expect(got == expected, quote(expected), got)


def _ndarray(probe: Probe) -> None:
    numbers = {**grps.model_field(probe), **grps.tensor_message("DT_FLOAT32", [2], [1, 2])}
    if not grps.succeeds(grps.predict(probe, numbers)):
        raise NotApplicableError("About models that accept one row of numbers")
    _, message = grps.example(probe, [numbers])
    got = grps.success(grps.predict(probe, {**grps.model_field(probe), "ndarray": [1, 2]}))
    _expect_same(grps.data_of(message), grps.data_of(got))


def _return_ndarray(probe: Probe) -> None:
    sent, message = grps.example(probe, grps.tensor_messages(probe))
    tensors = grps.tensors_in(message)
    if len(tensors) != 1 or tensors[0].get("dtype") not in ("DT_FLOAT32", 7):
        raise NotApplicableError("About models that answer with one tensor of DT_FLOAT32")
    got = grps.success(grps.predict(probe, sent, **{"return-ndarray": "true"})).get("ndarray")
    elements = np.array(tensors[0].get("flat_float32", []), object)
    _expect_same(elements.reshape(tensors[0].get("shape", [])).tolist(), got)


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
        is_refused = exchange.status in (405, 415) or re.search(rb"content.type", exchange.body, re.IGNORECASE)
        expect(not is_refused, "bytes to be accepted", exchange.body)
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


def _not_ready_status(probe: Probe) -> None:
    got = rpc.readiness_after(probe, "Offline").status
    expect(got == 503, "HTTP status 503", got)


def _predict_nothing(probe: Probe) -> Exchange:
    return grps.predict(probe, {**grps.model_field(probe), "conform_unknown": 1})


def _http_status(probe: Probe) -> None:
    for exchange in (rpc.request_unknown_model(probe), _predict_nothing(probe)):
        status = grps.message_of(exchange).get("status")
        code = status.get("code") if is_object(status) else None
        expect(code == exchange.status, f"HTTP status {quote(code)}, which is the code", exchange.status)


def _streams(probe: Probe) -> None:
    sent, _ = grps.example(probe)
    exchange = grps.predict(probe, sent, streaming="true")
    if not exchange.ok:
        raise InconclusiveError(f"The engine does not stream: {exchange.status} {quote(exchange.body)}")
    messages = _split_messages(exchange.body)
    if not messages:
        raise InconclusiveError("The model streams nothing")
    for message in messages:
        grps.expect_success(message)


def _split_messages(body: bytes) -> list[dict[str, Any]]:
    """Return JSON objects that are concatenated, with only white space between them."""
    text, messages = body.decode(errors="replace").strip(), list[dict[str, Any]]()
    while text:
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            end = len(text)
        messages.append(decode_object(text[:end].encode()))
        text = text[end:].lstrip()
    return messages


def _streamed_ndarray(probe: Probe) -> None:
    sent, _ = grps.first_success(probe)
    grps.failure(grps.predict(probe, sent, **{"streaming": "true", "return-ndarray": "true"}))


_PAGE = "GRPS, interface page"
_BOTH = "GRPS's Python and C++ servers"
_PYTHON = "GRPS's Python server; the C++ server does not"
_PREDICTS = ("GRPS-006",)

CHECKS = (
    Check("GRPS-001", MUST, "GET health/live reports 200 and SUCCESS.", f"{_PAGE}, health", rpc.live),
    Check("GRPS-002", MUST, "After GET health/online, health/ready reports 200 and SUCCESS.", f"{_PAGE}, health",
          rpc.online, requires=("GRPS-001",)),
    Check("GRPS-003", MUST, "After GET health/offline, health/ready reports FAILURE.", _BOTH, rpc.not_ready,
          requires=("GRPS-002",)),
    Check("GRPS-004", SHOULD, "After GET health/offline, the HTTP status of health/ready is 503.", _PYTHON,
          _not_ready_status, requires=("GRPS-003",)),
    Check("GRPS-005", MUST, "GET metadata/server describes the server in YAML.", f"{_PAGE}, metadata",
          rpc.server_metadata),
    Check("GRPS-006", MUST, "POST infer/predict answers with 200 and SUCCESS, or with bytes.", f"{_PAGE}, predict",
          rpc.predicts),
    Check("GRPS-007", MUST, "An answer holds one kind of data.", f"{_PAGE}, data_oneof", rpc.one_kind,
          requires=_PREDICTS),
    Check("GRPS-008", MUST, "Messages have the Content-Type application/json.", f"{_PAGE}: JSON expresses the message",
          _content_type, requires=("GRPS-001", *_PREDICTS)),
    Check("GRPS-009", MUST, "A tensor's elements are in the field of its dtype, and their number matches its shape.",
          f"{_PAGE}, GenericTensor", rpc.tensors, requires=_PREDICTS),
    Check("GRPS-010", MUST, "A dtype may be a number or a name.", f"{_PAGE}: enumerations", _by_number,
          requires=("GRPS-009",)),
    Check("GRPS-011", MUST, "ndarray is read as one tensor of DT_FLOAT32.", f"{_PAGE}, ndarray", _ndarray,
          requires=("GRPS-009",)),
    Check("GRPS-012", MUST, "With return-ndarray=true, the tensor is returned as nested numbers.", f"{_PAGE}, predict",
          _return_ndarray, requires=("GRPS-009",)),
    Check("GRPS-013", SHOULD, "return-ndarray=true is a failure if the answer has no tensors.", _BOTH, _no_ndarray,
          requires=_PREDICTS),
    Check("GRPS-014", MUST, "A body of application/octet-stream is read as bin_data.", f"{_PAGE}, bin_data", _bytes,
          requires=_PREDICTS),
    Check("GRPS-015", MUST, "An unknown model is a failure.", _BOTH,
          lambda probe: grps.failure(rpc.request_unknown_model(probe)), requires=_PREDICTS),
    Check("GRPS-016", SHOULD, "The code for an unknown model is 404.",
          "GRPS's C++ server; the Python server returns 500",
          lambda probe: grps.failure(rpc.request_unknown_model(probe), 404), requires=("GRPS-015",)),
    Check("GRPS-017", MUST, "The query can name the model.", f"{_PAGE}, selecting a model", _model_in_query,
          requires=("GRPS-015",)),
    Check("GRPS-018", MUST, "The message's model takes precedence over the query's.", f"{_PAGE}, selecting a model",
          _body_before_query, requires=("GRPS-015",)),
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
          lambda probe: grps.expect_reasons(rpc.request_unknown_model(probe), _predict_nothing(probe)),
          requires=("GRPS-015", "GRPS-021")),
    Check("GRPS-026", SHOULD, "The HTTP status equals the code.", f"{_PYTHON}: always 200", _http_status,
          requires=("GRPS-015", "GRPS-021")),
    Check("GRPS-027", MUST, "POST metadata/model describes a model, by its bare name, in YAML.", f"{_PAGE}, metadata",
          rpc.model_metadata),
    Check("GRPS-028", MUST, "A metadata request for an unknown model is a failure.", _BOTH,
          lambda probe: grps.failure(rpc.request_unknown_metadata(probe))),
    Check("GRPS-029", MUST, "With streaming=true, the messages are concatenated, each with 200 and SUCCESS.",
          f"{_PAGE}, streaming", _streams, requires=_PREDICTS),
    Check("GRPS-030", SHOULD, "streaming=true with return-ndarray=true is a failure.", _BOTH, _streamed_ndarray,
          requires=_PREDICTS),
)  # fmt: skip
