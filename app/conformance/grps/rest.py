"""Check GRPS over HTTP."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.conformance.clause import Clause, FaultError, InapplicableError, Level, UntestedError
from app.conformance.grps import standing
from app.conformance.grps.asking import (
    BYTES,
    answered,
    failure,
    health,
    message_of,
    messages_in,
    model_query,
    post_bytes,
    predict,
    shown,
    succeeds,
    success,
)
from app.conformance.grps.messages import (
    REFUSED,
    UNKNOWN,
    asked,
    bare_name,
    by_number,
    data_of,
    expect_success,
    expect_tensors,
    tensors_asked,
    tensors_in,
)
from app.conformance.pictures import OWN_PICTURES
from app.conformance.probe import Exchange, Probe
from app.conformance.quoting import brief
from app.conformance.tensors import is_json, is_object

__all__ = ("CLAUSES",)

_NUMBERS: Mapping[str, object] = {"ndarray": [1, 2]}
_SAME_NUMBERS: Mapping[str, object] = {
    "gtensors": {"tensors": [{"dtype": "DT_FLOAT32", "shape": [2], "flat_float32": [1, 2]}]}
}


def _predicts(probe: Probe) -> None:
    for message in asked(probe.target):
        exchange = predict(probe, message)
        if succeeds(exchange):
            return
        failure(exchange)
    raise UntestedError(REFUSED)


def _one_kind(probe: Probe) -> None:
    _, message = shown(probe)
    if len(kinds := data_of(message)) != 1:
        raise FaultError(f"Expected one kind of data, got {brief(list(kinds))}")


def _content_type(probe: Probe) -> None:
    shown(probe)
    for exchange in (probe.exchanges[-1], health(probe, "live")):
        got = exchange.headers.get("content-type", "")
        if not is_json(got):
            raise FaultError(f"Expected application/json, got {brief(got)}")


def _tensors(probe: Probe) -> None:
    _, exchange = answered(probe, tensors_asked(probe.target))
    expect_tensors(exchange.object())


def _by_number(probe: Probe) -> None:
    sent, exchange = answered(probe, tensors_asked(probe.target))
    again = success(predict(probe, by_number(sent)))
    _expect_same(data_of(exchange.object()), data_of(again))


def _expect_same(expected: object, got: object) -> None:
    if got != expected:
        raise FaultError(f"Expected {brief(expected)}, got {brief(got)}")


def _numbers(probe: Probe) -> tuple[dict[str, object], Exchange]:
    """Return a message with one numeric tensor, and its successful response."""
    message = {**model_query(probe), **_SAME_NUMBERS}
    exchange = predict(probe, message)
    if not succeeds(exchange):
        raise InapplicableError("About models that accept one row of numbers")
    return message, exchange


def _ndarray(probe: Probe) -> None:
    _, exchange = _numbers(probe)
    got = success(predict(probe, {**model_query(probe), **_NUMBERS}))
    _expect_same(data_of(exchange.object()), data_of(got))


def _float_tensor(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    tensors = tensors_in(message)
    return tensors[0] if len(tensors) == 1 and tensors[0].get("dtype") in ("DT_FLOAT32", 7) else None


def _return_ndarray(probe: Probe) -> None:
    sent, exchange = answered(probe, tensors_asked(probe.target))
    tensor = _float_tensor(exchange.object())
    if tensor is None:
        raise InapplicableError("About models that answer with one tensor of DT_FLOAT32")
    got = success(predict(probe, sent, **{"return-ndarray": "true"})).get("ndarray")
    _expect_same(_nested(tensor.get("flat_float32", []), tensor.get("shape", [])), got)


def _nested(flat: Sequence[object], shape: Sequence[int]) -> object:
    if not shape:
        return flat[0] if flat else None
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _no_ndarray(probe: Probe) -> None:
    sent, message = shown(probe)
    if "gtensors" in message:
        raise InapplicableError("About models that do not answer with tensors")
    failure(predict(probe, sent, **{"return-ndarray": "true"}))


def _bytes(probe: Probe) -> None:
    answered(probe, asked(probe.target))
    for body in (OWN_PICTURES[0].data, b"hello grps"):
        exchange = post_bytes(probe, body, BYTES, **model_query(probe))
        if succeeds(exchange):
            return
        if exchange.status in (405, 415) or re.search(rb"content.type", exchange.body, re.IGNORECASE):
            raise FaultError(f"Expected bytes to be accepted, got {exchange.status} {brief(exchange.body)}")
    raise UntestedError(f"The model accepts neither an image nor a text: {brief(probe.exchanges[-1].body)}")


def _unknown_model(probe: Probe) -> None:
    failure(_unknown_asked(probe))


def _unknown_asked(probe: Probe) -> Exchange:
    sent, _ = answered(probe, asked(probe.target))
    return predict(probe, {**sent, "model": UNKNOWN})


def _unknown_model_code(probe: Probe) -> None:
    failure(_unknown_asked(probe), 404)


def _model_in_query(probe: Probe) -> None:
    sent, _ = answered(probe, asked(probe.target))
    failure(predict(probe, {name: value for name, value in sent.items() if name != "model"}, model=UNKNOWN))


def _body_before_query(probe: Probe) -> None:
    bare_name(probe)
    sent, exchange = answered(probe, asked(probe.target))
    got = predict(probe, sent, model=UNKNOWN)
    if not succeeds(got):
        raise FaultError(f"Expected the model of the message, got {got.status} {brief(got.body)}")
    if exchange.status != got.status:
        raise FaultError(f"Expected HTTP status {exchange.status}, got {got.status}")


def _not_json(probe: Probe) -> Exchange:
    return post_bytes(probe, b'{"str_data": ', "application/json", **model_query(probe))


def _bad_json(probe: Probe) -> None:
    failure(_not_json(probe))


def _bad_json_blamed(probe: Probe) -> None:
    failure(_not_json(probe), 400)


def _no_data(probe: Probe) -> None:
    failure(predict(probe, {**model_query(probe), "conform_unknown": 1}))


def _empty(probe: Probe) -> None:
    failure(post_bytes(probe, b"", "application/json", **model_query(probe)))


def _other_type(probe: Probe) -> None:
    failure(post_bytes(probe, OWN_PICTURES[0].data, "image/png", **model_query(probe)))


def _bytes_in_json(probe: Probe) -> None:
    failure(predict(probe, {**model_query(probe), "bin_data": "aGVsbG8="}))


def _reasons(probe: Probe) -> None:
    for exchange in (_unknown_asked(probe), predict(probe, {**model_query(probe), "conform_unknown": 1})):
        status = message_of(exchange).get("status")
        if is_object(status) and status.get("status") not in ("SUCCESS", 1) and not status.get("msg"):
            raise FaultError(f"Expected a text in msg, got {brief(status)}")


def _http_status(probe: Probe) -> None:
    for exchange in (_unknown_asked(probe), predict(probe, {**model_query(probe), "conform_unknown": 1})):
        status = message_of(exchange).get("status")
        code = status.get("code") if is_object(status) else None
        if code != exchange.status:
            raise FaultError(f"Expected HTTP status {brief(code)}, which is the code, got {exchange.status}")


def _streams(probe: Probe) -> None:
    sent, _ = shown(probe)
    exchange = predict(probe, sent, streaming="true")
    if not exchange.ok:
        raise UntestedError(f"The engine does not stream: {exchange.status} {brief(exchange.body)}")
    messages = messages_in(exchange.body)
    if not messages:
        raise UntestedError("The model streams nothing")
    for message in messages:
        expect_success(message)


def _streamed_ndarray(probe: Probe) -> None:
    sent, _ = answered(probe, asked(probe.target))
    failure(predict(probe, sent, **{"streaming": "true", "return-ndarray": "true"}))


_PAGE = "GRPS, interface page"
_BOTH = "GRPS's Python and C++ servers"
_PYTHON = "GRPS's Python server; the C++ server does not"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PREDICTS = ("GRPS-006",)

CLAUSES = (
    Clause("GRPS-001", _MUST, "GET health/live reports 200 and SUCCESS.", f"{_PAGE}, health", standing.live),
    Clause("GRPS-002", _MUST, "After GET health/online, health/ready reports 200 and SUCCESS.", f"{_PAGE}, health",
           standing.online, requires=("GRPS-001",)),
    Clause("GRPS-003", _MUST, "After GET health/offline, health/ready reports FAILURE.", _BOTH, standing.not_ready,
           requires=("GRPS-001", "GRPS-002")),
    Clause("GRPS-004", _SHOULD, "After GET health/offline, the HTTP status of health/ready is 503.", _PYTHON,
           standing.not_ready_status,
           requires=("GRPS-003",)),
    Clause("GRPS-005", _MUST, "GET metadata/server describes the server in YAML.", f"{_PAGE}, metadata",
           standing.server_metadata),
    Clause("GRPS-006", _MUST, "POST infer/predict answers with 200 and SUCCESS, or with bytes.", f"{_PAGE}, predict",
           _predicts),
    Clause("GRPS-007", _MUST, "An answer holds one kind of data.", f"{_PAGE}, data_oneof", _one_kind,
           requires=_PREDICTS),
    Clause("GRPS-008", _MUST, "Messages have the Content-Type application/json.",
           f"{_PAGE}: JSON expresses the message", _content_type,
           requires=("GRPS-001", *_PREDICTS)),
    Clause("GRPS-009", _MUST, "A tensor's elements are in the field of its dtype, and their number matches its shape.",
           f"{_PAGE}, GenericTensor", _tensors, requires=_PREDICTS),
    Clause("GRPS-010", _MUST, "A dtype may be a number or a name.", f"{_PAGE}: enumerations", _by_number,
           requires=("GRPS-009",)),
    Clause("GRPS-011", _MUST, "ndarray is read as one tensor of DT_FLOAT32.", f"{_PAGE}, ndarray", _ndarray,
           requires=("GRPS-009",)),
    Clause("GRPS-012", _MUST, "With return-ndarray=true, the tensor is returned as nested numbers.",
           f"{_PAGE}, predict",
           _return_ndarray, requires=("GRPS-009",)),
    Clause("GRPS-013", _SHOULD, "return-ndarray=true is a failure if the answer has no tensors.", _BOTH, _no_ndarray,
           requires=_PREDICTS),
    Clause("GRPS-014", _MUST, "A body of application/octet-stream is read as bin_data.", f"{_PAGE}, bin_data", _bytes,
           requires=_PREDICTS),
    Clause("GRPS-015", _MUST, "An unknown model is a failure.", _BOTH, _unknown_model, requires=_PREDICTS),
    Clause("GRPS-016", _SHOULD, "The code for an unknown model is 404.",
           "GRPS's C++ server; the Python server returns 500",
           _unknown_model_code, requires=("GRPS-015",)),
    Clause("GRPS-017", _MUST, "The query can name the model.", f"{_PAGE}, selecting a model", _model_in_query,
           requires=("GRPS-015",)),
    Clause("GRPS-018", _MUST, "The message's model takes precedence over the query's.", f"{_PAGE}, selecting a model",
           _body_before_query, requires=("GRPS-015",)),
    Clause("GRPS-019", _MUST, "Invalid JSON is a failure.", _BOTH, _bad_json),
    Clause("GRPS-020", _SHOULD, "The code for invalid JSON is 400.",
           "GRPS's C++ server; the Python server returns 500", _bad_json_blamed,
           requires=("GRPS-019",)),
    Clause("GRPS-021", _MUST, "A message without data is a failure.", _BOTH, _no_data),
    Clause("GRPS-022", _MUST, "An empty body is a failure.", _BOTH, _empty),
    Clause("GRPS-023", _MUST, "Other Content-Types are a failure.", _BOTH, _other_type),
    Clause("GRPS-024", _MUST, "bin_data in JSON is a failure.", f"{_PAGE}, bin_data; {_BOTH}", _bytes_in_json),
    Clause("GRPS-025", _MUST, "A failure has the reason in msg.", _BOTH, _reasons, requires=("GRPS-015", "GRPS-021")),
    Clause("GRPS-026", _SHOULD, "The HTTP status equals the code.", f"{_PYTHON}: always 200", _http_status,
           requires=("GRPS-015", "GRPS-021")),
    Clause("GRPS-027", _MUST, "POST metadata/model describes a model, by its bare name, in YAML.",
           f"{_PAGE}, metadata", standing.model_metadata),
    Clause("GRPS-028", _MUST, "A metadata request for an unknown model is a failure.", _BOTH,
           standing.unknown_metadata),
    Clause("GRPS-029", _MUST,
           "With streaming=true, the messages are concatenated, each with 200 and SUCCESS.",
           f"{_PAGE}, streaming", _streams, requires=_PREDICTS),
    Clause("GRPS-030", _SHOULD, "streaming=true with return-ndarray=true is a failure.", _BOTH, _streamed_ndarray,
           requires=_PREDICTS),
)  # fmt: skip
