"""Check chariot-v2, the smaller protocol of Striveworks' public engines."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.conformance.chariot.comparing import alike
from app.conformance.chariot.envelope import base64_of, infer_path
from app.conformance.chariot.items import item_clauses
from app.conformance.chariot.looking import Look, Looking
from app.conformance.chariot.places import place_clauses
from app.conformance.clause import Clause, FaultError, Level, Need, UntestedError
from app.conformance.pictures import OWN_PICTURES, Picture
from app.conformance.probe import Exchange, NotJsonError, Probe
from app.conformance.quoting import brief
from app.conformance.tensors import expect_error, is_list, is_object, said

__all__ = ("CLAUSES", "LOOKING")

_FIRST = OWN_PICTURES[0]


def _object(picture: Picture, parameters: Mapping[str, object]) -> dict[str, object]:
    return {"input": base64_of(picture), "parameters": dict(parameters)}


def _ask(probe: Probe, picture: Picture, parameters: Mapping[str, object]) -> Exchange:
    return probe.post_json(infer_path(probe), _object(picture, parameters))


def _read(exchange: Exchange) -> Sequence[object]:
    try:
        found = exchange.object().get("output")
    except NotJsonError as error:
        raise UntestedError(str(error)) from None
    if not is_list(found):
        raise UntestedError(f"output is not a list: {brief(found)}")
    return found


LOOKING = Looking(_ask, _read)


def _shown(probe: Probe) -> Exchange:
    return _ask(probe, _FIRST, LOOKING.needed(probe))


def _sent(probe: Probe, body: bytes, **headers: str) -> Exchange:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return probe.send("POST", infer_path(probe), body=body, headers=named)


def _same(exchange: Exchange, expected: Exchange) -> None:
    said(exchange)
    got, wanted = (Look(_FIRST, _read(answer)).items for answer in (exchange, expected))
    if not alike(wanted, got, 0.05):
        raise FaultError(f"Expected {brief(list(wanted))}, got {brief(list(got))}")


def _answers(probe: Probe) -> None:
    if not is_list(said(_shown(probe)).get("output")):
        raise FaultError(f"Expected an array in output, got {brief(_shown(probe).body)}")


def _with_slash(probe: Probe) -> None:
    right = _shown(probe)
    _same(probe.send("POST", f"{right.path}/", body=right.sent, headers=right.sent_headers), right)


def _flat(probe: Probe) -> None:
    for look in LOOKING.looks(probe):
        if not all(is_object(item) for item in look.found):
            raise FaultError(f"Expected [item, ...], got {brief(list(look.found))}")


def _no_content_type(probe: Probe) -> None:
    right = _shown(probe)
    _same(_sent(probe, right.sent), right)


def _lines(probe: Probe, *pictures: Picture) -> Exchange:
    needed = LOOKING.needed(probe)
    body = b"".join(msgspec.json.encode(_object(image, needed)) + b"\n" for image in pictures)
    return _sent(probe, body, content_type="application/jsonl")


def _one_line(probe: Probe) -> None:
    _same(_lines(probe, _FIRST), _shown(probe))


def _several_lines(probe: Probe) -> None:
    asked = (OWN_PICTURES[0], OWN_PICTURES[1])
    exchange = _lines(probe, *asked)
    if not exchange.ok:
        raise FaultError(f"Expected status 200, got {exchange.status} {brief(exchange.body)}")
    try:
        lines = [msgspec.json.decode(line, type=dict[str, Any]) for line in exchange.body.splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        raise FaultError(f"Expected a JSON object a line: {error}") from None
    if len(lines) != 2 or not all(is_list(answer.get("output")) for answer in lines):
        raise FaultError(f"Expected two lines of output, got {brief(exchange.body)}")
    alone = [LOOKING.look(probe, image).items for image in asked]
    together = [Look(image, line["output"]).items for image, line in zip(asked, lines, strict=True)]
    if alike(alone[0], alone[1], 0.1):
        return
    if alike(together[0], alone[1], 0.05) and alike(together[1], alone[0], 0.05):
        raise FaultError("Expected the answers in the order of the lines, got the reverse order")


def _raw(probe: Probe) -> None:
    right = _shown(probe)
    parameters = msgspec.json.encode(LOOKING.needed(probe)).decode()
    _same(_sent(probe, _FIRST.data, content_type="image/png", chariot_inference_parameters=parameters), right)


def _bad_header(probe: Probe) -> None:
    expect_error(_sent(probe, _FIRST.data, content_type="image/png", chariot_inference_parameters="{"))


def _bad_json(probe: Probe) -> None:
    expect_error(_sent(probe, b'{"input": ', content_type="application/json"))


def _bad_base64(probe: Probe) -> None:
    expect_error(probe.post_json(infer_path(probe), {"input": "%%% not base64 %%%", "parameters": {}}))


def _no_input(probe: Probe) -> None:
    expect_error(probe.post_json(infer_path(probe), {"parameters": {}}))


def _detail(probe: Probe) -> None:
    answer = _sent(probe, b'{"input": ', content_type="application/json")
    if answer.ok:
        raise UntestedError("The engine does not refuse invalid JSON")
    if not isinstance(answer.object().get("detail"), str):
        raise FaultError(f"Expected a text in detail, got {brief(answer.body)}")


_YOLO = "Striveworks' public engine-yolo, chariot-v2"
_MUST, _SHOULD = Level.MUST, Level.SHOULD
_PARSED = (Need.STORAGE, Need.EVALUATION)
_ANSWERS = ("CV2-001",)

CLAUSES = (
    Clause("CV2-001", _MUST, "POST /infer answers {input, parameters} with {output}.", _YOLO, _answers, _PARSED),
    Clause("CV2-002", _SHOULD, "The path with a slash at the end works too.", "Chariot's path ends in /infer/",
           _with_slash,
           requires=_ANSWERS),
    Clause("CV2-003", _MUST, "output is the list of items.", _YOLO, _flat, _PARSED, _ANSWERS),
    Clause("CV2-004", _SHOULD, "Without a Content-Type, the body is read as JSON.", _YOLO, _no_content_type,
           requires=_ANSWERS),
    Clause("CV2-005", _MUST, "One line of application/jsonl gets the same answer as JSON.", _YOLO, _one_line,
           requires=_ANSWERS),
    Clause("CV2-006", _MUST, "Several lines get one line each, in order.", _YOLO, _several_lines,
           requires=("CV2-001", "CV2-005")),
    Clause("CV2-007", _MUST,
           "With another Content-Type, the body is the image, and chariot-inference-parameters has its parameters.",
           _YOLO, _raw,
           requires=_ANSWERS),
    Clause("CV2-008", _MUST, "Parameters in the header that are not JSON are refused with 4xx.", f"{_YOLO}: 400",
           _bad_header, requires=("CV2-007",)),
    Clause("CV2-009", _MUST, "Invalid JSON is refused with 4xx.", f"{_YOLO}: 400", _bad_json),
    Clause("CV2-010", _MUST, "Invalid base64 is refused with 4xx.", f"{_YOLO}: 400", _bad_base64),
    Clause("CV2-011", _MUST, "A body without input is refused with 4xx.", f"{_YOLO}: 400", _no_input),
    Clause("CV2-012", _SHOULD, "A refusal has the reason in detail.", _YOLO, _detail, requires=("CV2-009",)),
    *item_clauses("CV2", LOOKING),
    *place_clauses("CV2", LOOKING),
)  # fmt: skip
