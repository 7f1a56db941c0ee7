"""Check GRPS over HTTP."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.conformance.check import Check, InconclusiveError, Level, NotApplicableError, ViolationError, expect, quote
from app.conformance.client.probe import Exchange, Probe
from app.conformance.grps import rpc
from app.conformance.grps.messages import (
    BYTES,
    REFUSED,
    UNKNOWN,
    bare_name,
    data_of,
    example,
    expect_success,
    failure,
    first_success,
    message_of,
    model_query,
    post_bytes,
    predict,
    request_messages,
    split_messages,
    succeeds,
    success,
    tensor_messages,
    tensors_in,
    with_dtype_numbers,
)
from app.conformance.sample_images import SAMPLE_IMAGES
from app.conformance.tensors import expect_json_type, is_object

_NUMBERS: Mapping[str, object] = {"ndarray": [1, 2]}
_SAME_NUMBERS: Mapping[str, object] = {
    "gtensors": {"tensors": [{"dtype": "DT_FLOAT32", "shape": [2], "flat_float32": [1, 2]}]}
}


def _predicts(probe: Probe) -> None:
    for message in request_messages(probe.target):
        exchange = predict(probe, message)
        if succeeds(exchange):
            return
        failure(exchange)
    raise InconclusiveError(REFUSED)


def _one_kind(probe: Probe) -> None:
    _, message = example(probe)
    expect(len(kinds := data_of(message)) == 1, "one kind of data", list(kinds))


def _content_type(probe: Probe) -> None:
    example(probe)
    for exchange in (probe.exchanges[-1], rpc.health(probe, "CheckLiveness")):
        expect_json_type(exchange)


def _by_number(probe: Probe) -> None:
    sent, exchange = first_success(probe, tensor_messages(probe.target))
    again = success(predict(probe, with_dtype_numbers(sent)))
    _expect_same(data_of(exchange.object()), data_of(again))


def _expect_same(expected: object, got: object) -> None:
    expect(got == expected, quote(expected), got)


def _predict_numbers(probe: Probe) -> Exchange:
    """Return the successful response to one numeric tensor."""
    exchange = predict(probe, {**model_query(probe), **_SAME_NUMBERS})
    if not succeeds(exchange):
        raise NotApplicableError("About models that accept one row of numbers")
    return exchange


def _ndarray(probe: Probe) -> None:
    exchange = _predict_numbers(probe)
    got = success(predict(probe, {**model_query(probe), **_NUMBERS}))
    _expect_same(data_of(exchange.object()), data_of(got))


def _float_tensor(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    tensors = tensors_in(message)
    return tensors[0] if len(tensors) == 1 and tensors[0].get("dtype") in ("DT_FLOAT32", 7) else None


def _return_ndarray(probe: Probe) -> None:
    sent, exchange = first_success(probe, tensor_messages(probe.target))
    tensor = _float_tensor(exchange.object())
    if tensor is None:
        raise NotApplicableError("About models that answer with one tensor of DT_FLOAT32")
    got = success(predict(probe, sent, **{"return-ndarray": "true"})).get("ndarray")
    _expect_same(_nested(tensor.get("flat_float32", []), tensor.get("shape", [])), got)


def _nested(flat: Sequence[object], shape: Sequence[int]) -> object:
    if not shape:
        return flat[0] if flat else None
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _no_ndarray(probe: Probe) -> None:
    sent, message = example(probe)
    if "gtensors" in message:
        raise NotApplicableError("About models that do not answer with tensors")
    failure(predict(probe, sent, **{"return-ndarray": "true"}))


def _bytes(probe: Probe) -> None:
    first_success(probe, request_messages(probe.target))
    for body in (SAMPLE_IMAGES[0].data, b"hello grps"):
        exchange = post_bytes(probe, body, BYTES, **model_query(probe))
        if succeeds(exchange):
            return
        if exchange.status in (405, 415) or re.search(rb"content.type", exchange.body, re.IGNORECASE):
            raise ViolationError(f"Expected bytes to be accepted, got {exchange.status} {quote(exchange.body)}")
    raise InconclusiveError(f"The model accepts neither an image nor a text: {quote(probe.exchanges[-1].body)}")


def _model_in_query(probe: Probe) -> None:
    sent, _ = first_success(probe, request_messages(probe.target))
    failure(predict(probe, {name: value for name, value in sent.items() if name != "model"}, model=UNKNOWN))


def _body_before_query(probe: Probe) -> None:
    bare_name(probe)  # raises without a model name
    sent, exchange = first_success(probe, request_messages(probe.target))
    got = predict(probe, sent, model=UNKNOWN)
    if not succeeds(got):
        raise ViolationError(f"Expected the model of the message, got {got.status} {quote(got.body)}")
    expect(exchange.status == got.status, f"HTTP status {exchange.status}", got.status)


def _not_json(probe: Probe) -> Exchange:
    return post_bytes(probe, b'{"str_data": ', "application/json", **model_query(probe))


def _not_ready_status(probe: Probe) -> None:
    got = rpc.readiness_after(probe, "Offline").status
    expect(got == 503, "HTTP status 503", got)


def _predict_nothing(probe: Probe) -> Exchange:
    return predict(probe, {**model_query(probe), "conform_unknown": 1})


def _reasons(probe: Probe) -> None:
    for exchange in (rpc.request_unknown_model(probe), _predict_nothing(probe)):
        status = message_of(exchange).get("status")
        if is_object(status) and status.get("status") not in ("SUCCESS", 1) and not status.get("msg"):
            raise ViolationError(f"Expected a text in msg, got {quote(status)}")


def _http_status(probe: Probe) -> None:
    for exchange in (rpc.request_unknown_model(probe), _predict_nothing(probe)):
        status = message_of(exchange).get("status")
        code = status.get("code") if is_object(status) else None
        if code != exchange.status:
            raise ViolationError(f"Expected HTTP status {quote(code)}, which is the code, got {exchange.status}")


def _streams(probe: Probe) -> None:
    sent, _ = example(probe)
    exchange = predict(probe, sent, streaming="true")
    if not exchange.ok:
        raise InconclusiveError(f"The engine does not stream: {exchange.status} {quote(exchange.body)}")
    messages = split_messages(exchange.body)
    if not messages:
        raise InconclusiveError("The model streams nothing")
    for message in messages:
        expect_success(message)


def _streamed_ndarray(probe: Probe) -> None:
    sent, _ = first_success(probe, request_messages(probe.target))
    failure(predict(probe, sent, **{"streaming": "true", "return-ndarray": "true"}))


_PAGE = "GRPS, interface page"
_BOTH = "GRPS's Python and C++ servers"
_PYTHON = "GRPS's Python server; the C++ server does not"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PREDICTS = ("GRPS-006",)

CHECKS = (
    Check("GRPS-001", _MUST, "GET health/live reports 200 and SUCCESS.", f"{_PAGE}, health", rpc.live),
    Check("GRPS-002", _MUST, "After GET health/online, health/ready reports 200 and SUCCESS.", f"{_PAGE}, health",
          rpc.online, requires=("GRPS-001",)),
    Check("GRPS-003", _MUST, "After GET health/offline, health/ready reports FAILURE.", _BOTH, rpc.not_ready,
          requires=("GRPS-001", "GRPS-002")),
    Check("GRPS-004", _SHOULD, "After GET health/offline, the HTTP status of health/ready is 503.", _PYTHON,
          _not_ready_status, requires=("GRPS-003",)),
    Check("GRPS-005", _MUST, "GET metadata/server describes the server in YAML.", f"{_PAGE}, metadata",
          rpc.server_metadata),
    Check("GRPS-006", _MUST, "POST infer/predict answers with 200 and SUCCESS, or with bytes.", f"{_PAGE}, predict",
          _predicts),
    Check("GRPS-007", _MUST, "An answer holds one kind of data.", f"{_PAGE}, data_oneof", _one_kind,
          requires=_PREDICTS),
    Check("GRPS-008", _MUST, "Messages have the Content-Type application/json.", f"{_PAGE}: JSON expresses the message",
          _content_type, requires=("GRPS-001", *_PREDICTS)),
    Check("GRPS-009", _MUST, "A tensor's elements are in the field of its dtype, and their number matches its shape.",
          f"{_PAGE}, GenericTensor", rpc.tensors, requires=_PREDICTS),
    Check("GRPS-010", _MUST, "A dtype may be a number or a name.", f"{_PAGE}: enumerations", _by_number,
          requires=("GRPS-009",)),
    Check("GRPS-011", _MUST, "ndarray is read as one tensor of DT_FLOAT32.", f"{_PAGE}, ndarray", _ndarray,
          requires=("GRPS-009",)),
    Check("GRPS-012", _MUST, "With return-ndarray=true, the tensor is returned as nested numbers.", f"{_PAGE}, predict",
          _return_ndarray, requires=("GRPS-009",)),
    Check("GRPS-013", _SHOULD, "return-ndarray=true is a failure if the answer has no tensors.", _BOTH, _no_ndarray,
          requires=_PREDICTS),
    Check("GRPS-014", _MUST, "A body of application/octet-stream is read as bin_data.", f"{_PAGE}, bin_data", _bytes,
          requires=_PREDICTS),
    Check("GRPS-015", _MUST, "An unknown model is a failure.", _BOTH,
          lambda probe: failure(rpc.request_unknown_model(probe)), requires=_PREDICTS),
    Check("GRPS-016", _SHOULD, "The code for an unknown model is 404.",
          "GRPS's C++ server; the Python server returns 500",
          lambda probe: failure(rpc.request_unknown_model(probe), 404), requires=("GRPS-015",)),
    Check("GRPS-017", _MUST, "The query can name the model.", f"{_PAGE}, selecting a model", _model_in_query,
          requires=("GRPS-015",)),
    Check("GRPS-018", _MUST, "The message's model takes precedence over the query's.", f"{_PAGE}, selecting a model",
          _body_before_query, requires=("GRPS-015",)),
    Check("GRPS-019", _MUST, "Invalid JSON is a failure.", _BOTH, lambda probe: failure(_not_json(probe))),
    Check("GRPS-020", _SHOULD, "The code for invalid JSON is 400.", "GRPS's C++ server; the Python server returns 500",
          lambda probe: failure(_not_json(probe), 400), requires=("GRPS-019",)),
    Check("GRPS-021", _MUST, "A message without data is a failure.", _BOTH,
          lambda probe: failure(_predict_nothing(probe))),
    Check("GRPS-022", _MUST, "An empty body is a failure.", _BOTH,
          lambda probe: failure(post_bytes(probe, b"", "application/json", **model_query(probe)))),
    Check("GRPS-023", _MUST, "Other Content-Types are a failure.", _BOTH,
          lambda probe: failure(post_bytes(probe, SAMPLE_IMAGES[0].data, "image/png", **model_query(probe)))),
    Check("GRPS-024", _MUST, "bin_data in JSON is a failure.", f"{_PAGE}, bin_data; {_BOTH}",
          lambda probe: failure(predict(probe, {**model_query(probe), "bin_data": "aGVsbG8="}))),
    Check("GRPS-025", _MUST, "A failure has the reason in msg.", _BOTH, _reasons, requires=("GRPS-015", "GRPS-021")),
    Check("GRPS-026", _SHOULD, "The HTTP status equals the code.", f"{_PYTHON}: always 200", _http_status,
          requires=("GRPS-015", "GRPS-021")),
    Check("GRPS-027", _MUST, "POST metadata/model describes a model, by its bare name, in YAML.", f"{_PAGE}, metadata",
          rpc.model_metadata),
    Check("GRPS-028", _MUST, "A metadata request for an unknown model is a failure.", _BOTH,
          lambda probe: failure(rpc.request_unknown_metadata(probe))),
    Check("GRPS-029", _MUST, "With streaming=true, the messages are concatenated, each with 200 and SUCCESS.",
          f"{_PAGE}, streaming", _streams, requires=_PREDICTS),
    Check("GRPS-030", _SHOULD, "streaming=true with return-ndarray=true is a failure.", _BOTH, _streamed_ndarray,
          requires=_PREDICTS),
)  # fmt: skip
