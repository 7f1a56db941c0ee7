"""Check paths, the response envelope and ids of chariot-v2-kserve."""

from typing import TypeGuard

from app.conformance.chariot.comparing import alike
from app.conformance.chariot.envelope import (
    LOOKING,
    image_input,
    infer,
    infer_path,
    items_of,
    outputs,
    shown,
    succeeded,
)
from app.conformance.chariot.looking import Look
from app.conformance.clause import Clause, FaultError, Level, Need, UntestedError
from app.conformance.pictures import OWN_PICTURES, PLAIN
from app.conformance.probe import Probe
from app.conformance.quoting import brief
from app.conformance.tensors import is_json

__all__ = ("CLAUSES",)

_HEALTH_PATHS = ("/ready", "/health", "/v2/health/ready", "/v2/health/live", "/healthz", "/")
_NAMES = ("first", 'Bild ä/2 "x"', "日本 3")
_ALL = (Need.STORAGE, Need.DRIFT, Need.EVALUATION, Need.CLIENTS)
_PARSED = (Need.STORAGE, Need.EVALUATION)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _answers(probe: Probe) -> None:
    succeeded(shown(probe))


def _answers_with_slash(probe: Probe) -> None:
    sent = shown(probe)
    succeeded(probe.send("POST", f"{infer_path(probe)}/", body=sent.sent, headers=sent.sent_headers))


def _answers_under_chariot_path(probe: Probe) -> None:
    if probe.target.model or "/v2/models/" in probe.target.url:
        succeeded(shown(probe))
        return
    sent = shown(probe)
    succeeded(probe.send("POST", "/v2/models/m-conform/infer", body=sent.sent, headers=sent.sent_headers))


def _health(probe: Probe) -> None:
    given = probe.target.health_path
    tried = (given,) if given else _HEALTH_PATHS
    for path in tried:
        if probe.get(path).ok:
            return
    raise FaultError(f"Expected status 200 of GET {' or '.join(tried)}")


def _ready(probe: Probe) -> None:
    answer = probe.get("/ready")
    if not answer.ok:
        raise FaultError(f"Expected status 200 of GET /ready, got {answer.status}")


def _content_type(probe: Probe) -> None:
    got = shown(probe).headers.get("content-type", "")
    if not is_json(got):
        raise FaultError(f"Expected application/json, got {brief(got)}")


def _charset(probe: Probe) -> None:
    sent = shown(probe)
    headers = {"content-type": "application/json; charset=utf-8"}
    succeeded(probe.send("POST", infer_path(probe), body=sent.sent, headers=headers))


def _has_outputs(probe: Probe) -> None:
    found = succeeded(shown(probe)).get("outputs")
    if not _is_list(found) or len(found) != 1 or not isinstance(found[0], dict):
        raise FaultError(f"Expected an array of one output object, got {brief(found)}")


def _several(probe: Probe) -> None:
    answer = infer(probe, [image_input(OWN_PICTURES[i], LOOKING.needed(probe), name=_NAMES[i]) for i in range(3)])
    found = succeeded(answer).get("outputs")
    if not _is_list(found) or len(found) != 3:
        raise FaultError(f"Expected 3 outputs, got {brief(found)}")


def _names(probe: Probe) -> None:
    answer = infer(probe, [image_input(OWN_PICTURES[i], LOOKING.needed(probe), name=_NAMES[i]) for i in range(3)])
    got = [output.get("name") for output in outputs(answer)]
    if got != list(_NAMES):
        raise FaultError(f"Expected the names {brief(list(_NAMES))} in this order, got {brief(got)}")


def _belonging(probe: Probe) -> None:
    """Send two images together whose separate responses differ."""
    looks = LOOKING.looks(probe)
    pairs = [(a, b) for i, a in enumerate(looks) for b in looks[i + 1 :] if not alike(a.items, b.items, 0.1)]
    if not pairs:
        raise UntestedError("The model gives the same answer for all images; give others with --image")
    first, second = pairs[0]
    alone = [LOOKING.look(probe, look.picture) for look in (first, second)]
    needed = LOOKING.needed(probe)
    asked = [image_input(look.picture, needed, name=name) for look, name in zip(alone, ("one", "other"), strict=True)]
    by_name = {str(output.get("name")): output for output in outputs(infer(probe, asked))}
    if set(by_name) != {"one", "other"}:
        raise UntestedError("The outputs do not have the names of the inputs")
    one, other = (Look(alone[0].picture, items_of(by_name[name])).items for name in ("one", "other"))
    if alike(one, alone[0].items, 0.05) and alike(other, alone[1].items, 0.05):
        return
    if alike(one, alone[1].items, 0.05) or alike(other, alone[0].items, 0.05):
        raise FaultError(
            f"Expected the first output to be for {first.picture.name}, got the output for {second.picture.name}"
        )
    raise UntestedError("The model gives different answers for two images in one request")


def _shape(probe: Probe) -> None:
    got = outputs(shown(probe))[0].get("shape")
    if not _is_list(got) or not all(type(length) is int for length in got):
        raise FaultError(f"Expected an array of integers, got {brief(got)}")


def _datatype(probe: Probe) -> None:
    got = outputs(shown(probe))[0].get("datatype")
    if got != "BYTES":
        raise FaultError(f"Expected BYTES, got {brief(got)}")


def _nesting(probe: Probe) -> None:
    LOOKING.looks(probe)
    for exchange in list(probe.exchanges):
        if not exchange.ok:
            continue
        data = outputs(exchange)[0].get("data")
        if not _is_list(data):
            raise FaultError(f"Expected [[item, ...]], got {brief(data)}")
        if data and not (len(data) == 1 and isinstance(data[0], list)):
            raise FaultError(f"Expected one element, the list of items, [[item, ...]], got {brief(data)}")


def _nothing(probe: Probe) -> None:
    for parameters in ({}, {"score_threshold": 0.9999}):
        found = outputs(infer(probe, [image_input(PLAIN, {**LOOKING.needed(probe), **parameters})]))[0]
        if not items_of(found):
            if found.get("data") != [[]]:
                raise FaultError(f"Expected data to be [[]], got {brief(found.get('data'))}")
            return
    raise UntestedError("The model finds something in a plain grey image too")


def _model(probe: Probe) -> None:
    answer = succeeded(shown(probe))
    for name in ("model_name", "model_version"):
        if not isinstance(answer.get(name), str):
            raise FaultError(f"Expected {name} to be a string, got {brief(answer.get(name))}")


def _parameters(probe: Probe) -> None:
    answer = succeeded(shown(probe))
    for where, holder in (("the answer", answer), ("outputs[0]", outputs(shown(probe))[0])):
        if not isinstance(holder.get("parameters"), dict | None):
            raise FaultError(
                f"Expected parameters of {where} to be an object, null or absent, got {brief(holder['parameters'])}"
            )


def _strict(probe: Probe) -> None:
    for picture in OWN_PICTURES:
        exchange = infer(probe, [image_input(picture, LOOKING.needed(probe))])
        if exchange.ok:
            succeeded(exchange)


def _expect_id(got: object, expected: str) -> None:
    if got != expected:
        raise FaultError(f"Expected the id {expected}, got {brief(got)}")


def _body_id(probe: Probe) -> None:
    _expect_id(succeeded(shown(probe, id="conform-1 ä")).get("id"), "conform-1 ä")


def _id_precedence(probe: Probe) -> None:
    answer = shown(probe, headers={"x-request-id": "from-header"}, id="from-body")
    _expect_id(succeeded(answer).get("id"), "from-body")


def _header_id(probe: Probe) -> None:
    _expect_id(succeeded(shown(probe, headers={"x-request-id": "from-header"})).get("id"), "from-header")


def _base_id(probe: Probe) -> None:
    answer = shown(probe, headers={"chariot-inference-base-id": "base-7"}, id="from-body")
    _expect_id(succeeded(answer).get("id"), "from-body")


def _own_id(probe: Probe) -> None:
    sent = shown(probe)
    again = probe.send("POST", sent.path, body=sent.sent, headers=sent.sent_headers, fresh=True)
    one, other = (succeeded(exchange).get("id") for exchange in (sent, again))
    if not isinstance(one, str) or not one:
        raise FaultError(f"Expected an id, got {brief(one)}")
    if one == other:
        raise FaultError(f"Expected a new id for each request, got {brief(one)} twice")


_PAGE = 'Chariot, "Inference Protocols"'
_YOLO = "Striveworks' public engine-yolo"
_MUST, _SHOULD = Level.MUST, Level.SHOULD

CLAUSES = (
    Clause(id="CV2K-001", level=_MUST, source=f"{_PAGE}, URL Paths", check=_answers, needed_for=_ALL,
           sentence="POST /infer below the base URL answers an image with status 200."),
    Clause(id="CV2K-002", level=_MUST, source=f"{_PAGE}, URL Paths: the platform's path ends in /infer/",
           check=_answers_with_slash, needed_for=_ALL, requires=("CV2K-001",),
           sentence="The path with a slash at the end works too, without a redirect."),
    Clause(id="CV2K-003", level=_SHOULD, source=f"{_PAGE}, URL Paths; container_root_relative_base_url",
           check=_answers_under_chariot_path, requires=("CV2K-001",),
           sentence="The path under /v2/models/m-<model id>/ works too."),
    Clause(id="CV2K-004", level=_MUST, source='Chariot, "Custom Inference Engines"', check=_health, needed_for=_ALL,
           sentence="A health path answers GET with status 200."),
    Clause(id="CV2K-005", level=_SHOULD, source=f"{_YOLO}, and older pages of Chariot", check=_ready,
           sentence="GET /ready answers with status 200."),
    Clause(id="CV2K-006", level=_MUST, source=f"{_PAGE}: each response is JSON", check=_content_type,
           requires=("CV2K-001",),
           sentence="The response's Content-Type is application/json."),
    Clause(id="CV2K-007", level=_MUST, source="RFC 9110, 8.3.1", check=_charset, requires=("CV2K-001",),
           sentence="A charset in the request's Content-Type is accepted."),
    Clause(id="CV2K-008", level=_MUST, source=f"{_PAGE}, Responses; RFC 8259", check=_strict, needed_for=_ALL,
           requires=("CV2K-001",), sentence="Responses are strict JSON: UTF-8, no NaN."),
    Clause(id="CV2K-009", level=_MUST, source=f"{_PAGE}, Responses", check=_has_outputs, needed_for=_PARSED,
           requires=("CV2K-001",), sentence="outputs is an array with one object for one input."),
    Clause(id="CV2K-010", level=_SHOULD, source=f"{_PAGE}, Requests: some engines take several images", check=_several,
           requires=("CV2K-009",), sentence="Several inputs are several images, with one output for each."),
    Clause(id="CV2K-011", level=_MUST, source=f"{_PAGE}, Requests and Responses", check=_names, needed_for=_PARSED,
           requires=("CV2K-010",),
           sentence="Outputs have the names of their inputs, with any characters, in the order of the inputs."),
    Clause(id="CV2K-012", level=_MUST, source=f"{_PAGE}, Requests: one output per input", check=_belonging,
           needed_for=_PARSED, requires=("CV2K-010",),
           sentence="The items of an output belong to the image of the input with the same name."),
    Clause(id="CV2K-013", level=_MUST, source=f"{_PAGE}, Responses", check=_shape, requires=("CV2K-009",),
           needed_for=_PARSED, sentence="An output's shape is an array of integers."),
    Clause(id="CV2K-014", level=_MUST, source=f"{_PAGE}, Responses", check=_datatype, requires=("CV2K-009",),
           needed_for=_PARSED, sentence="An output's datatype is BYTES."),
    Clause(id="CV2K-015", level=_MUST, source=f"{_YOLO}: data has one element, the list of items", check=_nesting,
           needed_for=_PARSED, requires=("CV2K-009",),
           sentence="data holds one list of items for the image: [[item, ...]]."),
    Clause(id="CV2K-016", level=_MUST, source=f"{_YOLO}: no detections are [[]]", check=_nothing, needed_for=_PARSED,
           requires=("CV2K-015",), sentence="data is [[]] if nothing is found."),
    Clause(id="CV2K-017", level=_SHOULD, source=f"{_PAGE}, Responses, the example", check=_model,
           requires=("CV2K-001",),
           needed_for=(Need.STORAGE,), sentence="model_name and model_version are strings."),
    Clause(id="CV2K-018", level=_MUST, source=f"{_PAGE}, Responses; {_YOLO} has null", check=_parameters,
           requires=("CV2K-009",), needed_for=_PARSED,
           sentence="parameters, of the response and of an output, is an object, null or absent."),
    Clause(id="CV2K-020", level=_MUST, source="Open Inference Protocol, REST: id", check=_body_id,
           requires=("CV2K-001",),
           needed_for=(Need.STORAGE,), sentence="The response has the id of the request."),
    Clause(id="CV2K-021", level=_MUST, source=f"{_YOLO}: id before X-Request-ID", check=_id_precedence,
           requires=("CV2K-020",), needed_for=(Need.STORAGE,),
           sentence="The body's id takes precedence over X-Request-ID."),
    Clause(id="CV2K-022", level=_SHOULD, source=f"{_YOLO}: X-Request-ID where the body has no id", check=_header_id,
           requires=("CV2K-001",), needed_for=(Need.STORAGE,),
           sentence="Without an id in the body, X-Request-ID is the response's id."),
    Clause(id="CV2K-023", level=_MUST, source="Chariot 0.26.1 release notes: Chariot-Inference-Base-ID", check=_base_id,
           requires=("CV2K-020",), needed_for=(Need.STORAGE,),
           sentence="Chariot-Inference-Base-ID is accepted, and does not replace the body's id."),
    Clause(id="CV2K-024", level=_SHOULD, source=f"{_YOLO}: a new UUID", check=_own_id, requires=("CV2K-001",),
           needed_for=(Need.STORAGE,), sentence="Without an id and X-Request-ID, each response has a new id."),
)  # fmt: skip
