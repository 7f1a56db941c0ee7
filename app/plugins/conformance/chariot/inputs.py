"""Check how an engine of chariot-v2-kserve handles custom metadata, and unknown, missing and invalid input."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx

from app.plugins.conformance.chariot.envelope import (
    PAGE,
    YOLO,
    example,
    example_output,
    infer,
    infer_path,
    items_of,
    needed_input,
    outputs,
)
from app.plugins.conformance.chariot.image_probe import is_similar, task_type_of
from app.plugins.conformance.check import (
    EVERYTHING,
    MUST,
    SHOULD,
    STORED,
    Check,
    NotApplicableError,
    expect,
    expect_same,
)
from app.plugins.conformance.exchange import Exchange, quote
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import SAMPLE_IMAGES
from app.plugins.conformance.tensors import is_object

_ACTIONS = {
    "IMAGE_CLASSIFICATION": ("predict", "predict_proba"),
    "OBJECT_DETECTION": ("detect",),
    "ORIENTED_OBJECT_DETECTION": ("detect",),
}
_FIRST = SAMPLE_IMAGES[0]
_HEADERS = {"x-forwarded-user": "conform", "x-conform-unknown": "1", "traceparent": "not one"}
_BAD_JSON = b'{"inputs": ['
_NOT_BASE64 = "%%% not base64 %%%"


_STANDARD = '{"standard_metadata": {}, "extended_metadata": [{"key": "a", "type": "int", "value": "1"}]}'
_FILLED = '{"standard_metadata": {"latitude": 51.5, "longitude": -0.12}, "extended_metadata": []}'
_LIST = '[{"key": "camera", "type": "str", "value": "7"}, {"key": "speed", "type": "float", "value": "1.50"}]'
_SPACED = '{ "b" : 1.0,\n\t"a" : 1e2, "b" : "\\u00e9" }'
_UNICODE = '{"place": "Zürich 東京 🛰 \u2028", "quote": "\\"\\\\"}'
_NOT_JSON = "not JSON: {[ 'x' NaN"
_LONG = '{"extended_metadata": [{"key": "k", "type": "str", "value": "' + 20_000 * "x" + '"}]}'


def _parameters_of(output: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of an output; empty if it has none."""
    parameters = output.get("parameters")
    return parameters if is_object(parameters) else {}


def _expect_returned(probe: Probe, *texts: str) -> None:
    """Raise a `ViolationError` unless each text, sent as metadata, is in the response."""
    for text in texts:
        got = _parameters_of(example_output(probe, {"metadata": text})).get("metadata")
        expect_same(got, text, f"outputs[0].parameters.metadata to be {quote(text)}")


def _matching(probe: Probe) -> None:
    texts = {f"image-{index}": text for index, text in enumerate((_STANDARD, _LIST, _NOT_JSON))}
    inputs = [needed_input(probe, parameters={"metadata": text}, name=name) for name, text in texts.items()]
    returned = {
        str(output.get("name")): _parameters_of(output).get("metadata") for output in outputs(infer(probe, inputs))
    }
    for name, text in texts.items():
        expect_same(returned.get(name), text, f"the metadata of {name}, {quote(text)}")


def _not_invented(probe: Probe) -> None:
    got = _parameters_of(example_output(probe))
    expect("metadata" not in got, "no metadata", got.get("metadata"))


def _known_actions(probe: Probe) -> None:
    task_type = task_type_of(probe)
    if task_type not in _ACTIONS:
        raise NotApplicableError(f"No actions are known for {task_type or 'a task type that was not recognised'}")
    for action in _ACTIONS[task_type]:
        example(probe, {"action": action}).expect_object()


def _expect_shapes(probe: Probe, *shapes: list[int]) -> None:
    """Raise a `ViolationError` unless an image of each of `shapes` is accepted."""
    for shape in shapes:
        infer(probe, [needed_input(probe, shape=shape)]).expect_object()


def _infer_data(probe: Probe, data: str | bytes) -> Exchange:
    return infer(probe, [needed_input(probe, data=[data])])


def _post(probe: Probe, body: bytes) -> Exchange:
    return probe.post(infer_path(probe), body)


def _text_threshold(probe: Probe) -> None:
    if task_type_of(probe) == "IMAGE_TEXT_TO_TEXT":
        raise NotApplicableError("About task types with scores; this is IMAGE_TEXT_TO_TEXT")
    example(probe, {"score_threshold": "high"}).expect_error()


def _error_body(probe: Probe) -> None:
    answer = _post(probe, _BAD_JSON)
    body = answer.object()
    has_reason = any(isinstance(body.get(name), str) and body[name] for name in ("error", "detail"))
    expect(has_reason, "a text in error or detail", answer.body)


def _recovers(probe: Probe) -> None:
    first_exchange = example(probe)
    for send_invalid in (
        lambda: _post(probe, _BAD_JSON),
        lambda: _infer_data(probe, _NOT_BASE64),
        lambda: infer(probe, []),
    ):
        # Other checks judge the rejections: an engine may close the connection instead.
        with suppress(httpx.HTTPError):
            send_invalid()
    second_exchange = probe.resend(first_exchange)
    second_exchange.expect_object()
    first, second = (items_of(outputs(exchange)[0]) for exchange in (first_exchange, second_exchange))
    expect(is_similar(first, second, 0.01), f"{quote(first)} again", second)


_ANSWERED = ("CV2K-001",)
_CUSTOM = f"{PAGE}, Custom Metadata"
_COPIED = f"{_CUSTOM}: copied through"
_RETURNED = ("CV2K-030",)

CHECKS = (
    Check("CV2K-030", MUST, "An output's parameters contain the metadata of its input.", _CUSTOM,
          lambda probe: _expect_returned(probe, _STANDARD), STORED, ("CV2K-009",)),
    Check("CV2K-031", MUST, "Metadata with standard_metadata filled in by Chariot is returned too.", _CUSTOM,
          lambda probe: _expect_returned(probe, _FILLED), STORED, _RETURNED),
    Check("CV2K-032", MUST, "Metadata that is a bare list of entries is returned too.", 'Chariot, "Inference Store"',
          lambda probe: _expect_returned(probe, _LIST), STORED, _RETURNED),
    Check("CV2K-033", MUST, "Metadata is not parsed and serialized again: spaces, numbers and repeated keys stay.",
          _COPIED, lambda probe: _expect_returned(probe, _SPACED), STORED, _RETURNED),
    Check("CV2K-034", MUST, "Metadata can contain any Unicode text.", _COPIED,
          lambda probe: _expect_returned(probe, _UNICODE), STORED, _RETURNED),
    Check("CV2K-035", MUST, "Metadata that is not JSON is returned too, without an error.", _COPIED,
          lambda probe: _expect_returned(probe, _NOT_JSON, ""), STORED, _RETURNED),
    Check("CV2K-036", MUST, "With several inputs, each output has the metadata of its own input.",
          f"{_CUSTOM}: the matching output", _matching, STORED, ("CV2K-011", "CV2K-035")),
    Check("CV2K-037", SHOULD, "Without metadata in the input, the output has none.", _CUSTOM, _not_invented,
          STORED, ("CV2K-009",)),
    Check("CV2K-038", MUST, "Metadata of 20,000 characters is returned in full.", _CUSTOM,
          lambda probe: _expect_returned(probe, _LONG), STORED, _RETURNED),
    Check("CV2K-040", MUST, "Unknown parameters of an input are ignored.", f"{PAGE}, Requests; {YOLO}",
          lambda probe: example(probe, {"conform_unknown": 7, "conform_nested": {"a": [1, None]}}).expect_object(),
          requires=_ANSWERED),
    Check("CV2K-041", MUST, "The actions that Chariot's clients send for the task type are accepted.",
          f"{PAGE}, Requests; engine-yolo's client sends detect", _known_actions, requires=_ANSWERED),
    Check("CV2K-042", SHOULD, "An unknown action is ignored.", f"{YOLO} reads no action",
          lambda probe: example(probe, {"action": "conform_unknown"}).expect_object(), requires=_ANSWERED),
    Check("CV2K-043", MUST, "Parameters of the whole request are accepted.", f"{PAGE}, Responses; {YOLO}",
          lambda probe: infer(probe, [needed_input(probe)], parameters={"conform_unknown": "x"}).expect_object(),
          requires=_ANSWERED),
    Check("CV2K-044", SHOULD, "Unknown fields of the request and of an input are ignored.",
          "Open Inference Protocol extensions; tritonclient sends some",
          lambda probe: infer(probe, [needed_input(probe, conform_unknown=1)], conform_unknown=1).expect_object(),
          requires=_ANSWERED),
    Check("CV2K-045", MUST, "Unknown request headers are ignored, including those of gateways.",
          f"{PAGE}, Responses: Chariot prefers headers to changing bodies",
          lambda probe: example(probe, headers=_HEADERS).expect_object(), EVERYTHING, _ANSWERED),
    Check("CV2K-046", MUST, "An image may have the shape [height, width, channels].", 'Chariot, "Inference Store"',
          lambda probe: _expect_shapes(probe, [_FIRST.height, _FIRST.width, 3]), requires=_ANSWERED),
    Check("CV2K-047", MUST, "An image may have the shapes [1, 1] and [-1].", f"{PAGE}, Requests",
          lambda probe: _expect_shapes(probe, [1, 1], [-1]), requires=_ANSWERED),
    Check("CV2K-050", MUST, "Invalid base64 is rejected with 4xx.", f"{YOLO}: 400",
          lambda probe: _infer_data(probe, _NOT_BASE64).expect_error(), requires=_ANSWERED),
    Check("CV2K-051", SHOULD, "Data that is not an image is rejected with 4xx.",
          "HTTP: a client error; engine-yolo returns 500",
          lambda probe: _infer_data(probe, b"not an image").expect_error(), requires=_ANSWERED),
    Check("CV2K-052", SHOULD, "A truncated image is rejected with 4xx.", "HTTP: a client error",
          lambda probe: _infer_data(probe, _FIRST.data[:45]).expect_error(), requires=_ANSWERED),
    Check("CV2K-053", MUST, "An empty array of inputs is rejected with 4xx.", f"{YOLO}: 400",
          lambda probe: infer(probe, []).expect_error(), requires=_ANSWERED),
    Check("CV2K-054", MUST, "A body without inputs is rejected with 4xx.", f"{PAGE}, Requests: inputs is required",
          lambda probe: _post(probe, b"{}").expect_error(), requires=_ANSWERED),
    Check("CV2K-055", MUST, "Invalid JSON is rejected with 4xx.", f"{YOLO}: 400",
          lambda probe: _post(probe, _BAD_JSON).expect_error(), requires=_ANSWERED),
    Check("CV2K-056", MUST, "JSON that is not an object is rejected with 4xx.", f"{YOLO}: 400",
          lambda probe: _post(probe, b"[1]").expect_error(), requires=_ANSWERED),
    Check("CV2K-057", MUST, "An empty body is rejected with 4xx.", f"{YOLO}: 400",
          lambda probe: _post(probe, b"").expect_error(), requires=_ANSWERED),
    Check("CV2K-058", SHOULD, "A score_threshold that is not a number is rejected with 4xx.", f"{YOLO}: 400",
          _text_threshold, requires=_ANSWERED),
    Check("CV2K-059", SHOULD, "A rejection is a JSON object with the reason in error or detail.",
          f"Chariot's own errors have error; {YOLO} has detail", _error_body, requires=("CV2K-055",)),
    Check("CV2K-060", MUST, "After rejections, the engine gives the same answer as before.", "Any server", _recovers,
          EVERYTHING, ("CV2K-009",)),
)  # fmt: skip
