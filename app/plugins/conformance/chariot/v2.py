"""Check chariot-v2, the smaller protocol of Striveworks' public engines."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.plugins.conformance.chariot import coordinates, items
from app.plugins.conformance.chariot.envelope import infer_path
from app.plugins.conformance.chariot.image_probe import is_similar, probe_image, required_parameters, results_of
from app.plugins.conformance.check import MUST, PARSED, SHOULD, Check, expect, renamed
from app.plugins.conformance.exchange import Exchange, InconclusiveError, ViolationError, decode_object, quote
from app.plugins.conformance.probe import ImageFormat, Probe
from app.plugins.conformance.sample_images import SAMPLE_IMAGES, SampleImage
from app.plugins.conformance.tensors import is_list, is_object

_FIRST = SAMPLE_IMAGES[0]
_BAD_JSON = b'{"input": '


def _object(image: SampleImage, parameters: Mapping[str, object]) -> dict[str, object]:
    return {"input": image.data, "parameters": dict(parameters)}


def _send(probe: Probe, image: SampleImage, parameters: Mapping[str, object]) -> Exchange:
    return probe.post_json(infer_path(probe), _object(image, parameters))


def _read_items(exchange: Exchange) -> Sequence[object]:
    try:
        output = exchange.object().get("output")
    except ViolationError as error:
        raise InconclusiveError(str(error)) from None
    if not is_list(output):
        raise InconclusiveError(f"output is not a list: {quote(output)}")
    return output


IMAGES = ImageFormat(_send, _read_items)


def _example(probe: Probe) -> Exchange:
    return _send(probe, _FIRST, required_parameters(probe))


def _post(probe: Probe, body: bytes, content_type: str = "application/json") -> Exchange:
    return probe.post(infer_path(probe), body, content_type)


def _post_image(probe: Probe, parameters: str) -> Exchange:
    headers = {"content-type": "image/png", "chariot-inference-parameters": parameters}
    return probe.send("POST", infer_path(probe), body=_FIRST.data, headers=headers)


def _expect_same(exchange: Exchange, expected: Exchange) -> None:
    exchange.expect_object()
    got, expected_items = _read_items(exchange), _read_items(expected)
    expect(is_similar(expected_items, got, 0.05), quote(expected_items), got)


def _answers(probe: Probe) -> None:
    exchange = _example(probe)
    expect(is_list(exchange.expect_object().get("output")), "an array in output", exchange.body)


def _with_slash(probe: Probe) -> None:
    expected = _example(probe)
    _expect_same(probe.resend(expected, f"{expected.path}/"), expected)


def _flat(probe: Probe) -> None:
    for result in results_of(probe):
        expect(all(is_object(item) for item in result.raw_items), "[item, ...]", list(result.raw_items))


def _no_content_type(probe: Probe) -> None:
    expected = _example(probe)
    _expect_same(probe.send("POST", expected.path, body=expected.request_body), expected)


def _send_lines(probe: Probe, *images: SampleImage) -> Exchange:
    needed = required_parameters(probe)
    body = b"".join(msgspec.json.encode(_object(image, needed)) + b"\n" for image in images)
    return _post(probe, body, "application/jsonl")


def _several_lines(probe: Probe) -> None:
    images = (SAMPLE_IMAGES[0], SAMPLE_IMAGES[1])
    exchange = _send_lines(probe, *images)
    exchange.expect_status(200)
    lines = [decode_object(line) for line in exchange.body.splitlines() if line.strip()]
    together: list[Any] = [answer.get("output") for answer in lines]
    expect(len(lines) == 2 and all(map(is_list, together)), "two lines of output", exchange.body)
    separate = [probe_image(probe, image).raw_items for image in images]
    if is_similar(separate[0], separate[1], 0.1):
        # Equal answers do not show the order.
        return
    if is_similar(together[0], separate[1], 0.05) and is_similar(together[1], separate[0], 0.05):
        raise ViolationError("Expected the answers in the order of the lines, got the reverse order")


def _raw(probe: Probe) -> None:
    expected = _example(probe)
    parameters = msgspec.json.encode(required_parameters(probe)).decode()
    _expect_same(_post_image(probe, parameters), expected)


def _detail(probe: Probe) -> None:
    answer = _post(probe, _BAD_JSON)
    expect(isinstance(answer.object().get("detail"), str), "a text in detail", answer.body)


_YOLO = "Striveworks' public engine-yolo, chariot-v2"
_ANSWERS = ("CV2-001",)

CHECKS = (
    Check("CV2-001", MUST, "POST /infer answers {input, parameters} with {output}.", _YOLO, _answers, PARSED),
    Check("CV2-002", SHOULD, "The path with a slash at the end works too.", "Chariot's path ends in /infer/",
          _with_slash, requires=_ANSWERS),
    Check("CV2-003", MUST, "output is the list of items.", _YOLO, _flat, PARSED, _ANSWERS),
    Check("CV2-004", SHOULD, "Without a Content-Type, the body is read as JSON.", _YOLO, _no_content_type,
          requires=_ANSWERS),
    Check("CV2-005", MUST, "One line of application/jsonl gets the same answer as JSON.", _YOLO,
          lambda probe: _expect_same(_send_lines(probe, _FIRST), _example(probe)), requires=_ANSWERS),
    Check("CV2-006", MUST, "Several lines get one line each, in order.", _YOLO, _several_lines, requires=("CV2-005",)),
    Check("CV2-007", MUST,
          "With another Content-Type, the body is the image, and chariot-inference-parameters has its parameters.",
          _YOLO, _raw, requires=_ANSWERS),
    Check("CV2-008", MUST, "Parameters in the header that are not JSON are rejected with 4xx.", f"{_YOLO}: 400",
          lambda probe: _post_image(probe, "{").expect_error(), requires=("CV2-007",)),
    Check("CV2-009", MUST, "Invalid JSON is rejected with 4xx.", f"{_YOLO}: 400",
          lambda probe: _post(probe, _BAD_JSON).expect_error()),
    Check("CV2-010", MUST, "Invalid base64 is rejected with 4xx.", f"{_YOLO}: 400",
          lambda probe: _post(probe, b'{"input":"%%% not base64 %%%","parameters":{}}').expect_error()),
    Check("CV2-011", MUST, "A body without input is rejected with 4xx.", f"{_YOLO}: 400",
          lambda probe: _post(probe, b'{"parameters":{}}').expect_error()),
    Check("CV2-012", SHOULD, "A rejection has the reason in detail.", _YOLO, _detail, requires=("CV2-009",)),
    *(renamed(check, "CV2") for check in (*items.CHECKS, *coordinates.CHECKS)),
)  # fmt: skip
