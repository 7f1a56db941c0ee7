"""Check paths, the response envelope and ids of chariot-v2-kserve."""

from typing import TypeGuard

from app.conformance.chariot.envelope import (
    IMAGE_PROBE,
    example,
    expect_success,
    image_input,
    infer,
    infer_path,
    items_of,
    outputs,
)
from app.conformance.chariot.equality import is_similar
from app.conformance.chariot.image_probe import ProbeResult
from app.conformance.check import Check, InconclusiveError, Level, Need, ViolationError
from app.conformance.client.probe import Probe
from app.conformance.quoting import quote
from app.conformance.sample_images import BLANK_IMAGE, SAMPLE_IMAGES
from app.conformance.tensors import is_json

__all__ = ("CHECKS",)

_HEALTH_PATHS = ("/ready", "/health", "/v2/health/ready", "/v2/health/live", "/healthz", "/")
_NAMES = ("first", 'Bild ä/2 "x"', "日本 3")
_ALL = (Need.STORAGE, Need.DRIFT, Need.EVALUATION, Need.CLIENTS)
_PARSED = (Need.STORAGE, Need.EVALUATION)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _answers(probe: Probe) -> None:
    expect_success(example(probe))


def _answers_with_slash(probe: Probe) -> None:
    first = example(probe)
    expect_success(probe.send("POST", f"{infer_path(probe)}/", body=first.request_body, headers=first.request_headers))


def _answers_under_chariot_path(probe: Probe) -> None:
    if probe.target.model or "/v2/models/" in probe.target.url:
        expect_success(example(probe))
        return
    first = example(probe)
    expect_success(
        probe.send("POST", "/v2/models/m-conform/infer", body=first.request_body, headers=first.request_headers)
    )


def _health(probe: Probe) -> None:
    declared_path = probe.target.health_path
    paths = (declared_path,) if declared_path else _HEALTH_PATHS
    for path in paths:
        if probe.get(path).ok:
            return
    raise ViolationError(f"Expected status 200 of GET {' or '.join(paths)}")


def _ready(probe: Probe) -> None:
    answer = probe.get("/ready")
    if not answer.ok:
        raise ViolationError(f"Expected status 200 of GET /ready, got {answer.status}")


def _content_type(probe: Probe) -> None:
    got = example(probe).headers.get("content-type", "")
    if not is_json(got):
        raise ViolationError(f"Expected application/json, got {quote(got)}")


def _charset(probe: Probe) -> None:
    first = example(probe)
    headers = {"content-type": "application/json; charset=utf-8"}
    expect_success(probe.send("POST", infer_path(probe), body=first.request_body, headers=headers))


def _has_outputs(probe: Probe) -> None:
    got = expect_success(example(probe)).get("outputs")
    if not _is_list(got) or len(got) != 1 or not isinstance(got[0], dict):
        raise ViolationError(f"Expected an array of one output object, got {quote(got)}")


def _several_images(probe: Probe) -> None:
    answer = infer(
        probe, [image_input(SAMPLE_IMAGES[i], IMAGE_PROBE.required_parameters(probe), name=_NAMES[i]) for i in range(3)]
    )
    got = expect_success(answer).get("outputs")
    if not _is_list(got) or len(got) != 3:
        raise ViolationError(f"Expected 3 outputs, got {quote(got)}")


def _names(probe: Probe) -> None:
    answer = infer(
        probe, [image_input(SAMPLE_IMAGES[i], IMAGE_PROBE.required_parameters(probe), name=_NAMES[i]) for i in range(3)]
    )
    got = [output.get("name") for output in outputs(answer)]
    if got != list(_NAMES):
        raise ViolationError(f"Expected the names {quote(list(_NAMES))} in this order, got {quote(got)}")


def _items_match_inputs(probe: Probe) -> None:
    """Send two images together whose separate responses differ."""
    results = IMAGE_PROBE.results(probe)
    pairs = [(a, b) for i, a in enumerate(results) for b in results[i + 1 :] if not is_similar(a.items, b.items, 0.1)]
    if not pairs:
        raise InconclusiveError("The model gives the same answer for all images; give others with --image")
    first, second = pairs[0]
    alone = [IMAGE_PROBE.probe_image(probe, result.image) for result in (first, second)]
    needed = IMAGE_PROBE.required_parameters(probe)
    inputs = [image_input(item.image, needed, name=name) for item, name in zip(alone, ("one", "other"), strict=True)]
    by_name = {str(output.get("name")): output for output in outputs(infer(probe, inputs))}
    if set(by_name) != {"one", "other"}:
        raise InconclusiveError("The outputs do not have the names of the inputs")
    one, other = (ProbeResult(alone[0].image, items_of(by_name[name])).items for name in ("one", "other"))
    if is_similar(one, alone[0].items, 0.05) and is_similar(other, alone[1].items, 0.05):
        return
    if is_similar(one, alone[1].items, 0.05) or is_similar(other, alone[0].items, 0.05):
        raise ViolationError(
            f"Expected the first output to be for {first.image.name}, got the output for {second.image.name}"
        )
    raise InconclusiveError("The model gives different answers for two images in one request")


def _shape(probe: Probe) -> None:
    got = outputs(example(probe))[0].get("shape")
    if not _is_list(got) or not all(type(length) is int for length in got):
        raise ViolationError(f"Expected an array of integers, got {quote(got)}")


def _datatype(probe: Probe) -> None:
    got = outputs(example(probe))[0].get("datatype")
    if got != "BYTES":
        raise ViolationError(f"Expected BYTES, got {quote(got)}")


def _nesting(probe: Probe) -> None:
    IMAGE_PROBE.results(probe)
    for exchange in list(probe.exchanges):
        if not exchange.ok:
            continue
        data = outputs(exchange)[0].get("data")
        if not _is_list(data):
            raise ViolationError(f"Expected [[item, ...]], got {quote(data)}")
        if data and not (len(data) == 1 and isinstance(data[0], list)):
            raise ViolationError(f"Expected one element, the list of items, [[item, ...]], got {quote(data)}")


def _no_items(probe: Probe) -> None:
    for parameters in ({}, {"score_threshold": 0.9999}):
        output = outputs(
            infer(probe, [image_input(BLANK_IMAGE, {**IMAGE_PROBE.required_parameters(probe), **parameters})])
        )[0]
        if not items_of(output):
            if output.get("data") != [[]]:
                raise ViolationError(f"Expected data to be [[]], got {quote(output.get('data'))}")
            return
    raise InconclusiveError("The model finds something in a plain grey image too")


def _model(probe: Probe) -> None:
    answer = expect_success(example(probe))
    for name in ("model_name", "model_version"):
        if not isinstance(answer.get(name), str):
            raise ViolationError(f"Expected {name} to be a string, got {quote(answer.get(name))}")


def _parameters(probe: Probe) -> None:
    answer = expect_success(example(probe))
    for where, holder in (("the answer", answer), ("outputs[0]", outputs(example(probe))[0])):
        if not isinstance(holder.get("parameters"), dict | None):
            raise ViolationError(
                f"Expected parameters of {where} to be an object, null or absent, got {quote(holder['parameters'])}"
            )


def _strict(probe: Probe) -> None:
    for image in SAMPLE_IMAGES:
        exchange = infer(probe, [image_input(image, IMAGE_PROBE.required_parameters(probe))])
        if exchange.ok:
            expect_success(exchange)


def _expect_id(got: object, expected: str) -> None:
    if got != expected:
        raise ViolationError(f"Expected the id {expected}, got {quote(got)}")


def _body_id(probe: Probe) -> None:
    _expect_id(expect_success(example(probe, id="conform-1 ä")).get("id"), "conform-1 ä")


def _id_precedence(probe: Probe) -> None:
    answer = example(probe, headers={"x-request-id": "from-header"}, id="from-body")
    _expect_id(expect_success(answer).get("id"), "from-body")


def _header_id(probe: Probe) -> None:
    _expect_id(expect_success(example(probe, headers={"x-request-id": "from-header"})).get("id"), "from-header")


def _base_id(probe: Probe) -> None:
    answer = example(probe, headers={"chariot-inference-base-id": "base-7"}, id="from-body")
    _expect_id(expect_success(answer).get("id"), "from-body")


def _own_id(probe: Probe) -> None:
    first = example(probe)
    second = probe.send("POST", first.path, body=first.request_body, headers=first.request_headers, fresh=True)
    first_id, second_id = (expect_success(exchange).get("id") for exchange in (first, second))
    if not isinstance(first_id, str) or not first_id:
        raise ViolationError(f"Expected an id, got {quote(first_id)}")
    if first_id == second_id:
        raise ViolationError(f"Expected a new id for each request, got {quote(first_id)} twice")


_PAGE = 'Chariot, "Inference Protocols"'
_YOLO = "Striveworks' public engine-yolo"
_MUST, _SHOULD = Level.MUST, Level.SHOULD

CHECKS = (
    Check(id="CV2K-001", level=_MUST, source=f"{_PAGE}, URL Paths", run=_answers, needed_for=_ALL,
          sentence="POST /infer below the base URL answers an image with status 200."),
    Check(id="CV2K-002", level=_MUST, source=f"{_PAGE}, URL Paths: the platform's path ends in /infer/",
          run=_answers_with_slash, needed_for=_ALL, requires=("CV2K-001",),
          sentence="The path with a slash at the end works too, without a redirect."),
    Check(id="CV2K-003", level=_SHOULD, source=f"{_PAGE}, URL Paths; container_root_relative_base_url",
          run=_answers_under_chariot_path, requires=("CV2K-001",),
          sentence="The path under /v2/models/m-<model id>/ works too."),
    Check(id="CV2K-004", level=_MUST, source='Chariot, "Custom Inference Engines"', run=_health, needed_for=_ALL,
          sentence="A health path answers GET with status 200."),
    Check(id="CV2K-005", level=_SHOULD, source=f"{_YOLO}, and older pages of Chariot", run=_ready,
          sentence="GET /ready answers with status 200."),
    Check(id="CV2K-006", level=_MUST, source=f"{_PAGE}: each response is JSON", run=_content_type,
          requires=("CV2K-001",),
          sentence="The response's Content-Type is application/json."),
    Check(id="CV2K-007", level=_MUST, source="RFC 9110, 8.3.1", run=_charset, requires=("CV2K-001",),
          sentence="A charset in the request's Content-Type is accepted."),
    Check(id="CV2K-008", level=_MUST, source=f"{_PAGE}, Responses; RFC 8259", run=_strict, needed_for=_ALL,
          requires=("CV2K-001",), sentence="Responses are strict JSON: UTF-8, no NaN."),
    Check(id="CV2K-009", level=_MUST, source=f"{_PAGE}, Responses", run=_has_outputs, needed_for=_PARSED,
          requires=("CV2K-001",), sentence="outputs is an array with one object for one input."),
    Check(id="CV2K-010", level=_SHOULD, source=f"{_PAGE}, Requests: some engines take several images",
          run=_several_images, requires=("CV2K-009",),
          sentence="Several inputs are several images, with one output for each."),
    Check(id="CV2K-011", level=_MUST, source=f"{_PAGE}, Requests and Responses", run=_names, needed_for=_PARSED,
          requires=("CV2K-010",),
          sentence="Outputs have the names of their inputs, with any characters, in the order of the inputs."),
    Check(id="CV2K-012", level=_MUST, source=f"{_PAGE}, Requests: one output per input", run=_items_match_inputs,
          needed_for=_PARSED, requires=("CV2K-010",),
          sentence="The items of an output belong to the image of the input with the same name."),
    Check(id="CV2K-013", level=_MUST, source=f"{_PAGE}, Responses", run=_shape, requires=("CV2K-009",),
          needed_for=_PARSED, sentence="An output's shape is an array of integers."),
    Check(id="CV2K-014", level=_MUST, source=f"{_PAGE}, Responses", run=_datatype, requires=("CV2K-009",),
          needed_for=_PARSED, sentence="An output's datatype is BYTES."),
    Check(id="CV2K-015", level=_MUST, source=f"{_YOLO}: data has one element, the list of items", run=_nesting,
          needed_for=_PARSED, requires=("CV2K-009",),
          sentence="data holds one list of items for the image: [[item, ...]]."),
    Check(id="CV2K-016", level=_MUST, source=f"{_YOLO}: no detections are [[]]", run=_no_items, needed_for=_PARSED,
          requires=("CV2K-015",), sentence="data is [[]] if nothing is found."),
    Check(id="CV2K-017", level=_SHOULD, source=f"{_PAGE}, Responses, the example", run=_model,
          requires=("CV2K-001",),
          needed_for=(Need.STORAGE,), sentence="model_name and model_version are strings."),
    Check(id="CV2K-018", level=_MUST, source=f"{_PAGE}, Responses; {_YOLO} has null", run=_parameters,
          requires=("CV2K-009",), needed_for=_PARSED,
          sentence="parameters, of the response and of an output, is an object, null or absent."),
    Check(id="CV2K-020", level=_MUST, source="Open Inference Protocol, REST: id", run=_body_id,
          requires=("CV2K-001",),
          needed_for=(Need.STORAGE,), sentence="The response has the id of the request."),
    Check(id="CV2K-021", level=_MUST, source=f"{_YOLO}: id before X-Request-ID", run=_id_precedence,
          requires=("CV2K-020",), needed_for=(Need.STORAGE,),
          sentence="The body's id takes precedence over X-Request-ID."),
    Check(id="CV2K-022", level=_SHOULD, source=f"{_YOLO}: X-Request-ID where the body has no id", run=_header_id,
          requires=("CV2K-001",), needed_for=(Need.STORAGE,),
          sentence="Without an id in the body, X-Request-ID is the response's id."),
    Check(id="CV2K-023", level=_MUST, source="Chariot 0.26.1 release notes: Chariot-Inference-Base-ID", run=_base_id,
          requires=("CV2K-020",), needed_for=(Need.STORAGE,),
          sentence="Chariot-Inference-Base-ID is accepted, and does not replace the body's id."),
    Check(id="CV2K-024", level=_SHOULD, source=f"{_YOLO}: a new UUID", run=_own_id, requires=("CV2K-001",),
          needed_for=(Need.STORAGE,), sentence="Without an id and X-Request-ID, each response has a new id."),
)  # fmt: skip
