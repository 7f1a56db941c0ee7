"""Models and engines that the checks of Chariot's protocols are not for."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest

from app.plugins.conformance.check import CheckVerdict
from app.plugins.conformance.presentation import to_plain
from app.plugins.conformance.runner import ConformanceReport
from tests.plugins.conformance.engines import CHARIOT_PROTOCOLS, Engines, Fault, check_engine, check_with_fault

TEXT_MODEL = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
              "outputs": [{"name": "greeting", "datatype": "BYTES", "shape": [-1]}]}  # fmt: skip
IMAGE_MODEL = {"inputs": [{"name": "image", "datatype": "BYTES", "shape": [-1]}],
               "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, 3]}]}  # fmt: skip


def check(
    metadata: Mapping[str, object], outputs: Sequence[object], *, takes_text: bool, **target: Any
) -> ConformanceReport:
    """Check an engine of chariot-v2-kserve that answers with `outputs`, or rejects all inferences without any."""

    def reply(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"name": "m", "platform": "p", **metadata})
        tensors = json.loads(request.content or b"{}").get("inputs", [])
        if tensors and tensors[0].get("name") in ("text", "image"):
            return httpx.Response(200 if takes_text else 400, json={"outputs": []})
        return httpx.Response(200, json={"outputs": outputs}) if outputs else httpx.Response(400, json={"error": "no"})

    return check_engine("chariot-v2-kserve", reply, **target)


@pytest.mark.parametrize("protocol", CHARIOT_PROTOCOLS)
@pytest.mark.parametrize(("model", "reason"), [("half_plus_two", "takes tensors: x FP32"), ("greeter", "takes texts")])
def test_no_check_of_chariot_is_for_a_tensor_model(engines: Engines, protocol: str, model: str, reason: str) -> None:
    report = check_with_fault(engines, Fault(protocol=protocol, model=model))
    assert {finding.verdict for finding in report.findings} == {CheckVerdict.NOT_APPLICABLE}
    assert report.conforms
    assert reason in report.inapplicable_reason
    assert reason in to_plain(report)["inapplicable"]


@pytest.mark.parametrize(
    ("metadata", "outputs", "reason"),
    [
        (TEXT_MODEL, [{"name": "greeting", "datatype": "BYTES", "data": ["hello"]}], "takes texts: text BYTES"),
        (IMAGE_MODEL, [{"name": "embedding", "datatype": "FP32", "data": [1, 2, 3]}], "returns tensors, such as embed"),
    ],
)
def test_model_that_answers_an_image_with_tensors_is_not_checked(
    metadata: Mapping[str, object], outputs: Sequence[object], reason: str
) -> None:
    report = check(metadata, outputs, takes_text=metadata is TEXT_MODEL)
    assert reason in report.inapplicable_reason


@pytest.mark.parametrize(
    ("metadata", "outputs", "target"),
    [
        ({}, [], {}),
        ({"inputs": [], "outputs": []}, [], {}),
        (IMAGE_MODEL, [], {}),
        (IMAGE_MODEL, [{"name": "image", "datatype": "BYTES", "data": ["not items"]}], {}),
        (TEXT_MODEL, [], {"task_type": "OBJECT_DETECTION"}),
    ],
)
def test_broken_engine_of_images_is_checked(
    metadata: Mapping[str, object], outputs: Sequence[object], target: Any
) -> None:
    report = check(metadata, outputs, takes_text=metadata is TEXT_MODEL, **target)
    assert report.inapplicable_reason == ""
    assert not report.conforms
