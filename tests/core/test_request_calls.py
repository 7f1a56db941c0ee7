"""The way of a request through the code."""

import base64
import json
import re
from collections.abc import Callable

import pytest

from tests.support.request_trace import ROOT, Trace, trace_request

pytestmark = pytest.mark.slow


def chariot_body(image: str) -> bytes:
    text = base64.b64encode((ROOT / "fixtures/images" / image).read_bytes()).decode()
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [text], "parameters": {"action": "predict"}}
    return json.dumps({"inputs": [tensor]}).encode()


def instance_body(image: str) -> bytes:
    text = base64.b64encode((ROOT / "fixtures/images" / image).read_bytes()).decode()
    return json.dumps({"instances": [{"b64": text}]}).encode()


@pytest.fixture(scope="module")
def detection() -> Trace:
    return trace_request("fixtures/models/detector", "/infer", chariot_body("scene.jpg"))


def test_chat_completion_is_answered_without_the_application() -> None:
    image = base64.b64encode((ROOT / "fixtures/images/shape.jpg").read_bytes()).decode()
    content = [
        {"type": "text", "text": "What is in the picture?"},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{image}"}},
    ]
    body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
    trace = trace_request("fixtures/models/vlm", "/v1/chat/completions", body)
    assert any(call.function == "DirectRequest.complete_body" for call in trace.calls)
    assert not any("litestar" in call.file for call in trace.calls)


def kserve_v1_trace() -> Trace:
    return trace_request("fixtures/models/classifier", "/v1/models/classifier:predict", instance_body("shape.jpg"))


def tensorflow_serving_trace() -> Trace:
    return trace_request(
        "fixtures/models/classifier",
        "/v1/models/classifier:predict",
        instance_body("shape.jpg"),
        address="tensorflow_serving_address",
    )


def kserve_v2_trace() -> Trace:
    return trace_request("fixtures/models/classifier", "/v2/models/classifier/infer", chariot_body("shape.jpg"))


def grps_trace() -> Trace:
    image = (ROOT / "fixtures/images/shape.jpg").read_bytes()
    return trace_request(
        "fixtures/models/classifier", "/grps/v1/infer/predict?model=classifier", image, "application/octet-stream"
    )


@pytest.mark.parametrize("trace", [kserve_v2_trace, kserve_v1_trace, grps_trace, tensorflow_serving_trace])
def test_request_of_each_protocol_skips_the_web_framework(trace: Callable[[], Trace]) -> None:
    assert any(call.function == "DirectRequest.complete_body" for call in trace().calls)


def test_architecture_page_lists_the_way_of_a_request(detection: Trace) -> None:
    section = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("### Its functions")[2]
    table, _, rest = section.partition("\n## ")[0].partition("Helpers:")
    listed: list[tuple[str, str]] = []
    for row in re.findall(r"`([\w/]+\.py)` \|(.*)\|", table):
        listed += [(row[0], function) for function in re.findall(r"`([^`]+)`", row[1])]
    way = detection.way()
    assert listed == way
    assert len(way) <= 50
    assert len({file for file, _ in way}) <= 25
    assert sorted(re.findall(r"`([\w/]+\.py)`", rest)) == sorted(set(detection.own_files()) - {file for file, _ in way})
