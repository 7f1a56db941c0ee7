"""Check paths, the response envelope and ids of chariot-v2-kserve."""

from collections.abc import Mapping

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
from app.plugins.conformance.chariot.image_probe import is_similar, probe_image, results_of
from app.plugins.conformance.check import EVERYTHING, MUST, PARSED, SHOULD, STORED, Check, expect, expect_same
from app.plugins.conformance.exchange import Exchange, InconclusiveError, ViolationError, quote
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import BLANK_IMAGE, SAMPLE_IMAGES
from app.plugins.conformance.tensors import expect_form, is_list, is_object

_HEALTH_PATHS = ("/ready", "/health", "/v2/health/ready", "/v2/health/live", "/healthz", "/")
_NAMES = ("first", 'Bild ä/2 "x"', "日本 3")


def _answers_under_chariot_path(probe: Probe) -> None:
    exchange = example(probe)
    if not probe.target.model and "/v2/models/" not in probe.target.url:
        exchange = probe.resend(exchange, "/v2/models/m-conform/infer")
    exchange.expect_object()


def _health(probe: Probe) -> None:
    paths = (probe.target.health_path,) if probe.target.health_path else _HEALTH_PATHS
    if not any(probe.get(path).ok for path in paths):
        raise ViolationError(f"Expected status 200 of GET {' or '.join(paths)}")


def _has_outputs(probe: Probe) -> None:
    got = example(probe).expect_object().get("outputs")
    expect(is_list(got) and len(got) == 1 and is_object(got[0]), "an array of one output object", got)


def _infer_three(probe: Probe) -> Exchange:
    return infer(
        probe, [needed_input(probe, image, name=name) for image, name in zip(SAMPLE_IMAGES, _NAMES, strict=False)]
    )


def _three_outputs(probe: Probe) -> None:
    got = _infer_three(probe).expect_object().get("outputs")
    expect(is_list(got) and len(got) == 3, "3 outputs", got)


def _names(probe: Probe) -> None:
    got = [output.get("name") for output in outputs(_infer_three(probe))]
    expect_same(got, list(_NAMES), f"the names {quote(list(_NAMES))} in this order")


def _items_match_inputs(probe: Probe) -> None:
    """Send two images together whose separate responses differ."""
    results = results_of(probe)
    pairs = [(a, b) for i, a in enumerate(results) for b in results[i + 1 :] if not is_similar(a.items, b.items, 0.1)]
    if not pairs:
        raise InconclusiveError("The model gives the same answer for all images; give others with --image")
    first, second = pairs[0]
    alone = [probe_image(probe, result.image) for result in (first, second)]
    inputs = [needed_input(probe, item.image, name=name) for item, name in zip(alone, ("one", "other"), strict=True)]
    by_name = {str(output.get("name")): output for output in outputs(infer(probe, inputs))}
    if set(by_name) != {"one", "other"}:
        raise InconclusiveError("The outputs do not have the names of the inputs")
    one, other = (items_of(by_name[name]) for name in ("one", "other"))
    if is_similar(one, alone[0].items, 0.05) and is_similar(other, alone[1].items, 0.05):
        return
    if is_similar(one, alone[1].items, 0.05) or is_similar(other, alone[0].items, 0.05):
        got = f"got the output for {second.image.name}"
        raise ViolationError(f"Expected the first output to be for {first.image.name}, {got}")
    raise InconclusiveError("The model gives different answers for two images in one request")


def _nesting(probe: Probe) -> None:
    results_of(probe)
    for exchange in list(probe.exchanges):
        if not exchange.ok:
            continue
        data = outputs(exchange)[0].get("data")
        expect(is_list(data), "[[item, ...]]", data)
        expect(not data or (len(data) == 1 and is_list(data[0])), "one element, the list of items, [[item, ...]]", data)


def _two_images(probe: Probe) -> None:
    data = [image.data for image in SAMPLE_IMAGES[:2]]
    exchange = infer(probe, [needed_input(probe, shape=[len(data)], data=data)])
    if exchange.rejected:
        return
    exchange.expect_object()
    lists = [items for output in outputs(exchange) for items in output.get("data") or ()]
    expect(len(lists) == len(data), f"{len(data)} lists of items, or a rejection", lists)


def _no_items(probe: Probe) -> None:
    for parameters in ({}, {"score_threshold": 0.9999}):
        output = outputs(infer(probe, [needed_input(probe, BLANK_IMAGE, parameters)]))[0]
        if not items_of(output):
            expect(output.get("data") == [[]], "data to be [[]]", output.get("data"))
            return
    raise InconclusiveError("The model finds something in a plain grey image too")


def _model(probe: Probe) -> None:
    answer = example(probe).expect_object()
    for name in ("model_name", "model_version"):
        expect(isinstance(answer.get(name), str), f"{name} to be a string", answer.get(name))


def _parameters(probe: Probe) -> None:
    for where, holder in (("the answer", example(probe).expect_object()), ("outputs[0]", example_output(probe))):
        got = holder.get("parameters")
        expect(got is None or is_object(got), f"parameters of {where} to be an object, null or absent", got)


def _strict(probe: Probe) -> None:
    for image in SAMPLE_IMAGES:
        exchange = infer(probe, [needed_input(probe, image)])
        if exchange.ok:
            exchange.expect_object()


def _expect_id(probe: Probe, expected: str, headers: Mapping[str, str] | None = None, **fields: str) -> None:
    """Raise a `ViolationError` unless a request with `headers` and `fields` gets the id `expected`."""
    expect_same(example(probe, None, headers, **fields).expect_object().get("id"), expected, f"the id {expected}")


def _own_id(probe: Probe) -> None:
    first = example(probe)
    first_id, second_id = (exchange.expect_object().get("id") for exchange in (first, probe.resend(first)))
    expect(isinstance(first_id, str) and first_id, "an id", first_id)
    expect(first_id != second_id, "a new id for each request", [first_id, second_id])


_ANSWERED, _ONE_OUTPUT, _SAME_ID = ("CV2K-001",), ("CV2K-009",), ("CV2K-020",)

CHECKS = (
    Check("CV2K-001", MUST, "POST /infer below the base URL answers an image with status 200.", f"{PAGE}, URL Paths",
          lambda probe: example(probe).expect_object(), EVERYTHING),
    Check("CV2K-002", MUST, "The path with a slash at the end works too, without a redirect.",
          f"{PAGE}, URL Paths: the platform's path ends in /infer/",
          lambda probe: probe.resend(example(probe), f"{infer_path(probe)}/").expect_object(), EVERYTHING, _ANSWERED),
    Check("CV2K-003", SHOULD, "The path under /v2/models/m-<model id>/ works too.",
          f"{PAGE}, URL Paths; container_root_relative_base_url", _answers_under_chariot_path, requires=_ANSWERED),
    Check("CV2K-004", MUST, "A health path answers GET with status 200.", 'Chariot, "Custom Inference Engines"',
          _health, EVERYTHING),
    Check("CV2K-005", SHOULD, "GET /ready answers with status 200.", f"{YOLO}, and older pages of Chariot",
          lambda probe: probe.get("/ready").expect_status(200)),
    Check("CV2K-006", MUST, "The response's Content-Type is application/json.", f"{PAGE}: each response is JSON",
          lambda probe: example(probe).expect_json(), requires=_ANSWERED),
    Check("CV2K-007", MUST, "A charset in the request's Content-Type is accepted.", "RFC 9110, 8.3.1",
          lambda probe: probe.post(
              infer_path(probe), example(probe).request_body, "application/json; charset=utf-8").expect_object(),
          requires=_ANSWERED),
    Check("CV2K-008", MUST, "Responses are strict JSON: UTF-8, no NaN.", f"{PAGE}, Responses; RFC 8259", _strict,
          EVERYTHING, _ANSWERED),
    Check("CV2K-009", MUST, "outputs is an array with one object for one input.", f"{PAGE}, Responses", _has_outputs,
          PARSED, _ANSWERED),
    Check("CV2K-010", SHOULD, "Several inputs are several images, with one output for each.",
          f"{PAGE}, Requests: some engines take several images", _three_outputs, requires=_ONE_OUTPUT),
    Check("CV2K-011", MUST, "Outputs have the names of their inputs, with any characters, in the order of the inputs.",
          f"{PAGE}, Requests and Responses", _names, PARSED, ("CV2K-010",)),
    Check("CV2K-012", MUST, "The items of an output belong to the image of the input with the same name.",
          f"{PAGE}, Requests: one output per input", _items_match_inputs, PARSED, ("CV2K-010",)),
    Check("CV2K-013", MUST, "An output's shape is an array of integers.", f"{PAGE}, Responses",
          lambda probe: expect_form(example_output(probe).get("shape"), list[int], "an array of integers"), PARSED,
          _ONE_OUTPUT),
    Check("CV2K-014", MUST, "An output's datatype is BYTES.", f"{PAGE}, Responses",
          lambda probe: expect_same(example_output(probe).get("datatype"), "BYTES", "BYTES"), PARSED, _ONE_OUTPUT),
    Check("CV2K-015", MUST, "data holds one list of items for the image: [[item, ...]].",
          f"{YOLO}: data has one element, the list of items", _nesting, PARSED, _ONE_OUTPUT),
    Check("CV2K-019", SHOULD, "An input with two images is answered for both, or rejected with 4xx.",
          "Open Inference Protocol, Tensor Data: shape; engine-yolo answers only the first", _two_images, PARSED,
          ("CV2K-008", "CV2K-015")),
    Check("CV2K-016", MUST, "data is [[]] if nothing is found.", f"{YOLO}: no detections are [[]]", _no_items,
          PARSED, ("CV2K-015",)),
    Check("CV2K-017", SHOULD, "model_name and model_version are strings.", f"{PAGE}, Responses, the example", _model,
          STORED, _ANSWERED),
    Check("CV2K-018", MUST, "parameters, of the response and of an output, is an object, null or absent.",
          f"{PAGE}, Responses; {YOLO} has null", _parameters, PARSED, _ONE_OUTPUT),
    Check("CV2K-020", MUST, "The response has the id of the request.", "Open Inference Protocol, REST: id",
          lambda probe: _expect_id(probe, "conform-1 ä", id="conform-1 ä"), STORED, _ANSWERED),
    Check("CV2K-021", MUST, "The body's id takes precedence over X-Request-ID.", f"{YOLO}: id before X-Request-ID",
          lambda probe: _expect_id(probe, "from-body", {"x-request-id": "from-header"}, id="from-body"), STORED,
          _SAME_ID),
    Check("CV2K-022", SHOULD, "Without an id in the body, X-Request-ID is the response's id.",
          f"{YOLO}: X-Request-ID where the body has no id",
          lambda probe: _expect_id(probe, "from-header", {"x-request-id": "from-header"}), STORED, _ANSWERED),
    Check("CV2K-023", MUST, "Chariot-Inference-Base-ID is accepted, and does not replace the body's id.",
          "Chariot 0.26.1 release notes: Chariot-Inference-Base-ID",
          lambda probe: _expect_id(probe, "from-body", {"chariot-inference-base-id": "base-7"}, id="from-body"), STORED,
          _SAME_ID),
    Check("CV2K-024", SHOULD, "Without an id and X-Request-ID, each response has a new id.", f"{YOLO}: a new UUID",
          _own_id, STORED, _ANSWERED),
)  # fmt: skip
