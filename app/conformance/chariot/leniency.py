"""Check how an engine of chariot-v2-kserve handles unknown, missing and invalid input."""

from collections.abc import Callable

from app.conformance.chariot.envelope import (
    IMAGE_PROBE,
    base64_of,
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
from app.conformance.check import Check, InconclusiveError, Level, Need, NotApplicableError, ViolationError
from app.conformance.client.probe import Exchange, InvalidJsonError, Probe
from app.conformance.quoting import quote
from app.conformance.sample_images import SAMPLE_IMAGES

__all__ = ("CHECKS",)

_ACTIONS = {
    "IMAGE_CLASSIFICATION": ("predict", "predict_proba"),
    "OBJECT_DETECTION": ("detect",),
    "ORIENTED_OBJECT_DETECTION": ("detect",),
}
_FIRST = SAMPLE_IMAGES[0]


def _unknown_parameter(probe: Probe) -> None:
    expect_success(example(probe, {"conform_unknown": 7, "conform_nested": {"a": [1, None]}}))


def _unknown_action(probe: Probe) -> None:
    expect_success(example(probe, {"action": "conform_unknown"}))


def _known_actions(probe: Probe) -> None:
    task_type = IMAGE_PROBE.task_type(probe)
    if task_type not in _ACTIONS:
        raise NotApplicableError(f"No actions are known for {task_type or 'a task type that was not recognised'}")
    for action in _ACTIONS[task_type]:
        expect_success(example(probe, {"action": action}))


def _unknown_fields(probe: Probe) -> None:
    image = image_input(_FIRST, IMAGE_PROBE.required_parameters(probe), conform_unknown=1)
    expect_success(infer(probe, [image], conform_unknown={"a": 1}))


def _body_parameters(probe: Probe) -> None:
    image = image_input(_FIRST, IMAGE_PROBE.required_parameters(probe))
    expect_success(probe.post_json(infer_path(probe), {"inputs": [image], "parameters": {"conform_unknown": "x"}}))


def _unknown_headers(probe: Probe) -> None:
    headers = {"x-forwarded-user": "conform", "x-conform-unknown": "1", "traceparent": "not one"}
    expect_success(example(probe, headers=headers))


def _shape_of_pixels(probe: Probe) -> None:
    shape = [_FIRST.height, _FIRST.width, 3]
    expect_success(infer(probe, [image_input(_FIRST, IMAGE_PROBE.required_parameters(probe), shape=shape)]))


def _other_shapes(probe: Probe) -> None:
    for shape in ([1, 1], [-1]):
        expect_success(infer(probe, [image_input(_FIRST, IMAGE_PROBE.required_parameters(probe), shape=shape)]))


def _expect_4xx(exchange: Exchange) -> None:
    if not exchange.refused:
        raise ViolationError(f"Expected a status from 400 to 499, got {exchange.status} {quote(exchange.body)}")


def _bad_base64(probe: Probe) -> None:
    _expect_4xx(
        infer(probe, [image_input(_FIRST, IMAGE_PROBE.required_parameters(probe), data=["%%% not base64 %%%"])])
    )


def _not_an_image(probe: Probe) -> None:
    _expect_4xx(infer(probe, [image_input(_FIRST, IMAGE_PROBE.required_parameters(probe), data=["bm90IGFuIGltYWdl"])]))


def _truncated_image(probe: Probe) -> None:
    _expect_4xx(
        infer(probe, [image_input(_FIRST, IMAGE_PROBE.required_parameters(probe), data=[base64_of(_FIRST)[:60]])])
    )


def _no_inputs(probe: Probe) -> None:
    _expect_4xx(infer(probe, []))


def _inputs_absent(probe: Probe) -> None:
    _expect_4xx(probe.post_json(infer_path(probe), {}))


def _bad_json(probe: Probe) -> None:
    _expect_4xx(_post(probe, b'{"inputs": ['))


def _not_an_object(probe: Probe) -> None:
    _expect_4xx(_post(probe, b"[1]"))


def _empty(probe: Probe) -> None:
    _expect_4xx(_post(probe, b""))


def _text_threshold(probe: Probe) -> None:
    if IMAGE_PROBE.task_type(probe) == "IMAGE_TEXT_TO_TEXT":
        raise NotApplicableError("About task types with scores; this is IMAGE_TEXT_TO_TEXT")
    _expect_4xx(example(probe, {"score_threshold": "high"}))


def _post(probe: Probe, body: bytes) -> Exchange:
    return probe.send("POST", infer_path(probe), body=body, headers={"content-type": "application/json"})


def _error_body(probe: Probe) -> None:
    answer = _post(probe, b'{"inputs": [')
    if answer.ok:
        raise InconclusiveError("The engine does not refuse invalid JSON")
    try:
        body = answer.object()
    except InvalidJsonError as error:
        raise ViolationError(f"{error}: {quote(answer.body)}") from None
    if not any(isinstance(body.get(name), str) and body[name] for name in ("error", "detail")):
        raise ViolationError(f"Expected a text in error or detail, got {quote(answer.body)}")


def _recovers(probe: Probe) -> None:
    first_exchange = example(probe)
    for bad_request in (_bad_json, _bad_base64, _no_inputs):
        try:
            bad_request(probe)
        except ViolationError:
            continue
    second_exchange = probe.send(
        "POST",
        first_exchange.path,
        body=first_exchange.request_body,
        headers=first_exchange.request_headers,
        fresh=True,
    )
    first, second = ([*items_of(outputs(exchange)[0])] for exchange in (first_exchange, _expect_ok(second_exchange)))
    if not is_similar(ProbeResult(_FIRST, first).items, ProbeResult(_FIRST, second).items, 0.01):
        raise ViolationError(f"Expected {quote(first)} again, got {quote(second)}")


def _expect_ok(exchange: Exchange) -> Exchange:
    expect_success(exchange)
    return exchange


_PAGE = 'Chariot, "Inference Protocols"'
_YOLO = "Striveworks' public engine-yolo"
_ANSWERED = ("CV2K-001",)


def _check(
    check_id: str,
    level: Level,
    sentence: str,
    source: str,
    check: Callable[[Probe], None],
    needed_for: tuple[Need, ...] = (Need.CLIENTS,),
    requires: tuple[str, ...] = _ANSWERED,
) -> Check:
    return Check(
        id=check_id, level=level, source=source, sentence=sentence, run=check, needed_for=needed_for, requires=requires
    )


_MUST, _SHOULD = Level.MUST, Level.SHOULD
_EVERYTHING = (Need.STORAGE, Need.DRIFT, Need.EVALUATION, Need.CLIENTS)

CHECKS = (
    _check("CV2K-040", _MUST, "Unknown parameters of an input are ignored.", f"{_PAGE}, Requests; {_YOLO}",
           _unknown_parameter),
    _check("CV2K-041", _MUST, "The actions that Chariot's clients send for the task type are accepted.",
           f"{_PAGE}, Requests; engine-yolo's client sends detect", _known_actions),
    _check("CV2K-042", _SHOULD, "An unknown action is ignored.", f"{_YOLO} reads no action", _unknown_action),
    _check("CV2K-043", _MUST, "Parameters of the whole request are accepted.", f"{_PAGE}, Responses; {_YOLO}",
           _body_parameters),
    _check("CV2K-044", _SHOULD, "Unknown fields of the request and of an input are ignored.",
           "Open Inference Protocol extensions; tritonclient sends some", _unknown_fields),
    _check("CV2K-045", _MUST, "Unknown request headers are ignored, including those of gateways.",
           f"{_PAGE}, Responses: Chariot prefers headers to changing bodies", _unknown_headers, _EVERYTHING),
    _check("CV2K-046", _MUST, "An image may have the shape [height, width, channels].", 'Chariot, "Inference Store"',
           _shape_of_pixels),
    _check("CV2K-047", _MUST, "An image may have the shapes [1, 1] and [-1].", f"{_PAGE}, Requests", _other_shapes),
    _check("CV2K-050", _MUST, "Invalid base64 is refused with 4xx.", f"{_YOLO}: 400", _bad_base64),
    _check("CV2K-051", _SHOULD, "Data that is not an image is refused with 4xx.",
           "HTTP: a client error; engine-yolo returns 500", _not_an_image),
    _check("CV2K-052", _SHOULD, "A truncated image is refused with 4xx.", "HTTP: a client error",
           _truncated_image),
    _check("CV2K-053", _MUST, "An empty array of inputs is refused with 4xx.", f"{_YOLO}: 400", _no_inputs),
    _check("CV2K-054", _MUST, "A body without inputs is refused with 4xx.", f"{_PAGE}, Requests: inputs is required",
           _inputs_absent),
    _check("CV2K-055", _MUST, "Invalid JSON is refused with 4xx.", f"{_YOLO}: 400", _bad_json),
    _check("CV2K-056", _MUST, "JSON that is not an object is refused with 4xx.", f"{_YOLO}: 400", _not_an_object),
    _check("CV2K-057", _MUST, "An empty body is refused with 4xx.", f"{_YOLO}: 400", _empty),
    _check("CV2K-058", _SHOULD, "A score_threshold that is not a number is refused with 4xx.", f"{_YOLO}: 400",
           _text_threshold),
    _check("CV2K-059", _SHOULD, "A refusal is a JSON object with the reason in error or detail.",
           f"Chariot's own errors have error; {_YOLO} has detail", _error_body, requires=("CV2K-001", "CV2K-055")),
    _check("CV2K-060", _MUST, "After refusals, the engine gives the same answer as before.", "Any server", _recovers,
           _EVERYTHING,
           requires=("CV2K-001", "CV2K-009")),
)  # fmt: skip
