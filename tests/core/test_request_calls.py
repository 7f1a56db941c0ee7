"""The functions that one request calls are those that the page on architecture lists."""

import base64
import json
import re

import pytest

from tests.support.request_trace import ROOT, Trace, trace_request

pytestmark = pytest.mark.slow


def chariot_body(image: str) -> bytes:
    text = base64.b64encode((ROOT / "fixtures/images" / image).read_bytes()).decode()
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [text], "parameters": {"action": "predict"}}
    return json.dumps({"inputs": [tensor]}).encode()


@pytest.fixture(scope="module")
def detection() -> Trace:
    return trace_request("fixtures/models/detector", "/infer", chariot_body("scene.jpg"))


def test_inference_does_not_reach_the_framework(detection: Trace) -> None:
    assert not any("litestar" in call.file for call in detection.calls)


def test_architecture_page_lists_the_way_of_a_request(detection: Trace) -> None:
    section = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("### Its functions")[2]
    table, _, rest = section.partition("\n## ")[0].partition("Helpers:")
    listed: list[tuple[str, str]] = []
    for row in re.findall(r"`([\w/]+\.py)` \|(.*)\|", table):
        listed += [(row[0], function) for function in re.findall(r"`([^`]+)`", row[1])]
    way = detection.way()
    assert listed == way
    assert sorted(re.findall(r"`([\w/]+\.py)`", rest)) == sorted(set(detection.own_files()) - {file for file, _ in way})
