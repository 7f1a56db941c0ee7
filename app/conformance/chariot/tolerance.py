"""Check how an engine of chariot-v2-kserve handles unknown, missing and invalid input."""

from collections.abc import Callable

from app.conformance.chariot.comparing import alike
from app.conformance.chariot.envelope import (
    LOOKING,
    base64_of,
    image_input,
    infer,
    infer_path,
    items_of,
    outputs,
    shown,
    succeeded,
)
from app.conformance.chariot.looking import Look
from app.conformance.clause import Clause, FaultError, InapplicableError, Level, Need, UntestedError
from app.conformance.pictures import OWN_PICTURES
from app.conformance.probe import Exchange, NotJsonError, Probe
from app.conformance.quoting import brief

__all__ = ("CLAUSES",)

_ACTIONS = {
    "IMAGE_CLASSIFICATION": ("predict", "predict_proba"),
    "OBJECT_DETECTION": ("detect",),
    "ORIENTED_OBJECT_DETECTION": ("detect",),
}
_FIRST = OWN_PICTURES[0]


def _unknown_parameter(probe: Probe) -> None:
    succeeded(shown(probe, {"conform_unknown": 7, "conform_nested": {"a": [1, None]}}))


def _unknown_action(probe: Probe) -> None:
    succeeded(shown(probe, {"action": "conform_unknown"}))


def _known_actions(probe: Probe) -> None:
    task_type = LOOKING.task_type(probe)
    if task_type not in _ACTIONS:
        raise InapplicableError(f"No actions are known for {task_type or 'a task type that was not recognised'}")
    for action in _ACTIONS[task_type]:
        succeeded(shown(probe, {"action": action}))


def _unknown_fields(probe: Probe) -> None:
    asked = image_input(_FIRST, LOOKING.needed(probe), conform_unknown=1)
    succeeded(infer(probe, [asked], conform_unknown={"a": 1}))


def _body_parameters(probe: Probe) -> None:
    asked = image_input(_FIRST, LOOKING.needed(probe))
    succeeded(probe.post_json(infer_path(probe), {"inputs": [asked], "parameters": {"conform_unknown": "x"}}))


def _unknown_headers(probe: Probe) -> None:
    headers = {"x-forwarded-user": "conform", "x-conform-unknown": "1", "traceparent": "not one"}
    succeeded(shown(probe, headers=headers))


def _shape_of_pixels(probe: Probe) -> None:
    shape = [_FIRST.height, _FIRST.width, 3]
    succeeded(infer(probe, [image_input(_FIRST, LOOKING.needed(probe), shape=shape)]))


def _other_shapes(probe: Probe) -> None:
    for shape in ([1, 1], [-1]):
        succeeded(infer(probe, [image_input(_FIRST, LOOKING.needed(probe), shape=shape)]))


def _refused(exchange: Exchange) -> None:
    if not exchange.refused:
        raise FaultError(f"Expected a status from 400 to 499, got {exchange.status} {brief(exchange.body)}")


def _bad_base64(probe: Probe) -> None:
    _refused(infer(probe, [image_input(_FIRST, LOOKING.needed(probe), data=["%%% not base64 %%%"])]))


def _not_an_image(probe: Probe) -> None:
    _refused(infer(probe, [image_input(_FIRST, LOOKING.needed(probe), data=["bm90IGFuIGltYWdl"])]))


def _cut_image(probe: Probe) -> None:
    _refused(infer(probe, [image_input(_FIRST, LOOKING.needed(probe), data=[base64_of(_FIRST)[:60]])]))


def _no_inputs(probe: Probe) -> None:
    _refused(infer(probe, []))


def _inputs_absent(probe: Probe) -> None:
    _refused(probe.post_json(infer_path(probe), {}))


def _bad_json(probe: Probe) -> None:
    _refused(_sent(probe, b'{"inputs": ['))


def _not_an_object(probe: Probe) -> None:
    _refused(_sent(probe, b"[1]"))


def _empty(probe: Probe) -> None:
    _refused(_sent(probe, b""))


def _threshold_of_text(probe: Probe) -> None:
    if LOOKING.task_type(probe) == "IMAGE_TEXT_TO_TEXT":
        raise InapplicableError("About task types with scores; this is IMAGE_TEXT_TO_TEXT")
    _refused(shown(probe, {"score_threshold": "high"}))


def _sent(probe: Probe, body: bytes) -> Exchange:
    return probe.send("POST", infer_path(probe), body=body, headers={"content-type": "application/json"})


def _error_body(probe: Probe) -> None:
    answer = _sent(probe, b'{"inputs": [')
    if answer.ok:
        raise UntestedError("The engine does not refuse invalid JSON")
    try:
        body = answer.object()
    except NotJsonError as error:
        raise FaultError(f"{error}: {brief(answer.body)}") from None
    if not any(isinstance(body.get(name), str) and body[name] for name in ("error", "detail")):
        raise FaultError(f"Expected a text in error or detail, got {brief(answer.body)}")


def _recovers(probe: Probe) -> None:
    before = shown(probe)
    for spoil in (_bad_json, _bad_base64, _no_inputs):
        try:
            spoil(probe)
        except FaultError:
            continue
    after = probe.send("POST", before.path, body=before.sent, headers=before.sent_headers, fresh=True)
    first, second = ([*items_of(outputs(exchange)[0])] for exchange in (before, _checked(after)))
    if not alike(Look(_FIRST, first).items, Look(_FIRST, second).items, 0.01):
        raise FaultError(f"Expected {brief(first)} again, got {brief(second)}")


def _checked(exchange: Exchange) -> Exchange:
    succeeded(exchange)
    return exchange


_PAGE = 'Chariot, "Inference Protocols"'
_YOLO = "Striveworks' public engine-yolo"
_ANSWERED = ("CV2K-001",)


def _clause(
    number: str,
    level: Level,
    sentence: str,
    source: str,
    check: Callable[[Probe], None],
    needed_for: tuple[Need, ...] = (Need.CLIENTS,),
    requires: tuple[str, ...] = _ANSWERED,
) -> Clause:
    return Clause(
        id=number, level=level, source=source, sentence=sentence, check=check, needed_for=needed_for, requires=requires
    )


_MUST, _SHOULD = Level.MUST, Level.SHOULD
_EVERYTHING = (Need.STORAGE, Need.DRIFT, Need.EVALUATION, Need.CLIENTS)

CLAUSES = (
    _clause("CV2K-040", _MUST, "Unknown parameters of an input are ignored.", f"{_PAGE}, Requests; {_YOLO}",
            _unknown_parameter),
    _clause("CV2K-041", _MUST, "The actions that Chariot's clients send for the task type are accepted.",
            f"{_PAGE}, Requests; engine-yolo's client sends detect", _known_actions),
    _clause("CV2K-042", _SHOULD, "An unknown action is ignored.", f"{_YOLO} reads no action", _unknown_action),
    _clause("CV2K-043", _MUST, "Parameters of the whole request are accepted.", f"{_PAGE}, Responses; {_YOLO}",
            _body_parameters),
    _clause("CV2K-044", _SHOULD, "Unknown fields of the request and of an input are ignored.",
            "Open Inference Protocol extensions; tritonclient sends some", _unknown_fields),
    _clause("CV2K-045", _MUST, "Unknown request headers are ignored, including those of gateways.",
            f"{_PAGE}, Responses: Chariot prefers headers to changing bodies", _unknown_headers, _EVERYTHING),
    _clause("CV2K-046", _MUST, "An image may have the shape [height, width, channels].", 'Chariot, "Inference Store"',
            _shape_of_pixels),
    _clause("CV2K-047", _MUST, "An image may have the shapes [1, 1] and [-1].", f"{_PAGE}, Requests", _other_shapes),
    _clause("CV2K-050", _MUST, "Invalid base64 is refused with 4xx.", f"{_YOLO}: 400", _bad_base64),
    _clause("CV2K-051", _SHOULD, "Data that is not an image is refused with 4xx.",
            "HTTP: a client error; engine-yolo returns 500", _not_an_image),
    _clause("CV2K-052", _SHOULD, "A truncated image is refused with 4xx.", "HTTP: a client error",
            _cut_image),
    _clause("CV2K-053", _MUST, "An empty array of inputs is refused with 4xx.", f"{_YOLO}: 400", _no_inputs),
    _clause("CV2K-054", _MUST, "A body without inputs is refused with 4xx.", f"{_PAGE}, Requests: inputs is required",
            _inputs_absent),
    _clause("CV2K-055", _MUST, "Invalid JSON is refused with 4xx.", f"{_YOLO}: 400", _bad_json),
    _clause("CV2K-056", _MUST, "JSON that is not an object is refused with 4xx.", f"{_YOLO}: 400", _not_an_object),
    _clause("CV2K-057", _MUST, "An empty body is refused with 4xx.", f"{_YOLO}: 400", _empty),
    _clause("CV2K-058", _SHOULD, "A score_threshold that is not a number is refused with 4xx.", f"{_YOLO}: 400",
            _threshold_of_text),
    _clause("CV2K-059", _SHOULD, "A refusal is a JSON object with the reason in error or detail.",
            f"Chariot's own errors have error; {_YOLO} has detail", _error_body, requires=("CV2K-001", "CV2K-055")),
    _clause("CV2K-060", _MUST, "After refusals, the engine gives the same answer as before.", "Any server", _recovers,
            _EVERYTHING,
            requires=("CV2K-001", "CV2K-009")),
)  # fmt: skip
