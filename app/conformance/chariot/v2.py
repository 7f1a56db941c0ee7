"""Check chariot-v2, the smaller protocol of Striveworks' public engines."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.conformance.chariot import coordinates, items
from app.conformance.chariot.envelope import base64_of, infer_path
from app.conformance.chariot.image_probe import ImageProbe, ProbeResult, is_similar
from app.conformance.check import Check, InconclusiveError, Level, Need, ViolationError, expect, quote
from app.conformance.client.probe import Exchange, InvalidJsonError, Probe
from app.conformance.sample_images import SAMPLE_IMAGES, SampleImage
from app.conformance.tensors import expect_error, expect_json_object, expect_status, is_list, is_object

_FIRST = SAMPLE_IMAGES[0]
_BAD_JSON = b'{"input": '


def _object(image: SampleImage, parameters: Mapping[str, object]) -> dict[str, object]:
    return {"input": base64_of(image), "parameters": dict(parameters)}


def _send(probe: Probe, image: SampleImage, parameters: Mapping[str, object]) -> Exchange:
    return probe.post_json(infer_path(probe), _object(image, parameters))


def _read_items(exchange: Exchange) -> Sequence[object]:
    try:
        output = exchange.object().get("output")
    except InvalidJsonError as error:
        raise InconclusiveError(str(error)) from None
    if not is_list(output):
        raise InconclusiveError(f"output is not a list: {quote(output)}")
    return output


IMAGE_PROBE = ImageProbe(_send, _read_items)


def _example(probe: Probe) -> Exchange:
    return _send(probe, _FIRST, IMAGE_PROBE.required_parameters(probe))


def _post(probe: Probe, body: bytes, content_type: str = "application/json") -> Exchange:
    return probe.post(infer_path(probe), body, content_type)


def _post_image(probe: Probe, parameters: str) -> Exchange:
    headers = {"content-type": "image/png", "chariot-inference-parameters": parameters}
    return probe.send("POST", infer_path(probe), body=_FIRST.data, headers=headers)


def _expect_same(exchange: Exchange, expected: Exchange) -> None:
    expect_json_object(exchange)
    got, expected_items = (ProbeResult(_FIRST, _read_items(answer)).items for answer in (exchange, expected))
    expect(is_similar(expected_items, got, 0.05), quote(list(expected_items)), list(got))


def _answers(probe: Probe) -> None:
    exchange = _example(probe)
    expect(is_list(expect_json_object(exchange).get("output")), "an array in output", exchange.body)


def _with_slash(probe: Probe) -> None:
    expected = _example(probe)
    _expect_same(probe.resend(expected, f"{expected.path}/"), expected)


def _flat(probe: Probe) -> None:
    for result in IMAGE_PROBE.results(probe):
        expect(all(is_object(item) for item in result.raw_items), "[item, ...]", list(result.raw_items))


def _no_content_type(probe: Probe) -> None:
    expected = _example(probe)
    _expect_same(probe.send("POST", expected.path, body=expected.request_body), expected)


def _send_lines(probe: Probe, *images: SampleImage) -> Exchange:
    needed = IMAGE_PROBE.required_parameters(probe)
    body = b"".join(msgspec.json.encode(_object(image, needed)) + b"\n" for image in images)
    return _post(probe, body, "application/jsonl")


def _several_lines(probe: Probe) -> None:
    images = (SAMPLE_IMAGES[0], SAMPLE_IMAGES[1])
    exchange = _send_lines(probe, *images)
    expect_status(exchange, 200)
    try:
        lines = [msgspec.json.decode(line, type=dict[str, Any]) for line in exchange.body.splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise ViolationError(f"Expected a JSON object a line: {error}") from None
    if len(lines) != 2 or not all(is_list(answer.get("output")) for answer in lines):
        raise ViolationError(f"Expected two lines of output, got {quote(exchange.body)}")
    separate = [IMAGE_PROBE.probe_image(probe, image).items for image in images]
    together = [ProbeResult(image, line["output"]).items for image, line in zip(images, lines, strict=True)]
    if is_similar(separate[0], separate[1], 0.1):
        return
    if is_similar(together[0], separate[1], 0.05) and is_similar(together[1], separate[0], 0.05):
        raise ViolationError("Expected the answers in the order of the lines, got the reverse order")


def _raw(probe: Probe) -> None:
    expected = _example(probe)
    parameters = msgspec.json.encode(IMAGE_PROBE.required_parameters(probe)).decode()
    _expect_same(_post_image(probe, parameters), expected)


def _detail(probe: Probe) -> None:
    answer = _post(probe, _BAD_JSON)
    if answer.ok:
        raise InconclusiveError("The engine does not refuse invalid JSON")
    expect(isinstance(answer.object().get("detail"), str), "a text in detail", answer.body)


_YOLO = "Striveworks' public engine-yolo, chariot-v2"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PARSED = (Need.STORAGE, Need.EVALUATION)
_ANSWERS = ("CV2-001",)

CHECKS = (
    Check("CV2-001", _MUST, "POST /infer answers {input, parameters} with {output}.", _YOLO, _answers, _PARSED),
    Check("CV2-002", _SHOULD, "The path with a slash at the end works too.", "Chariot's path ends in /infer/",
          _with_slash, requires=_ANSWERS),
    Check("CV2-003", _MUST, "output is the list of items.", _YOLO, _flat, _PARSED, _ANSWERS),
    Check("CV2-004", _SHOULD, "Without a Content-Type, the body is read as JSON.", _YOLO, _no_content_type,
          requires=_ANSWERS),
    Check("CV2-005", _MUST, "One line of application/jsonl gets the same answer as JSON.", _YOLO,
          lambda probe: _expect_same(_send_lines(probe, _FIRST), _example(probe)), requires=_ANSWERS),
    Check("CV2-006", _MUST, "Several lines get one line each, in order.", _YOLO, _several_lines,
          requires=("CV2-001", "CV2-005")),
    Check("CV2-007", _MUST,
          "With another Content-Type, the body is the image, and chariot-inference-parameters has its parameters.",
          _YOLO, _raw, requires=_ANSWERS),
    Check("CV2-008", _MUST, "Parameters in the header that are not JSON are refused with 4xx.", f"{_YOLO}: 400",
          lambda probe: expect_error(_post_image(probe, "{")), requires=("CV2-007",)),
    Check("CV2-009", _MUST, "Invalid JSON is refused with 4xx.", f"{_YOLO}: 400",
          lambda probe: expect_error(_post(probe, _BAD_JSON))),
    Check("CV2-010", _MUST, "Invalid base64 is refused with 4xx.", f"{_YOLO}: 400",
          lambda probe: expect_error(_post(probe, b'{"input":"%%% not base64 %%%","parameters":{}}'))),
    Check("CV2-011", _MUST, "A body without input is refused with 4xx.", f"{_YOLO}: 400",
          lambda probe: expect_error(_post(probe, b'{"parameters":{}}'))),
    Check("CV2-012", _SHOULD, "A refusal has the reason in detail.", _YOLO, _detail, requires=("CV2-009",)),
    *(check.bind("CV2", IMAGE_PROBE) for check in (*items.CHECKS, *coordinates.CHECKS)),
)  # fmt: skip
