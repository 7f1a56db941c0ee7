"""Engines and requests that are odd, but valid, and models with odd names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from app.core.proto import message_class
from app.plugins.conformance.calls import parse_request
from app.plugins.conformance.check import CheckVerdict, Finding
from app.plugins.conformance.command import conform
from app.plugins.conformance.exchange import InconclusiveError
from app.plugins.conformance.model_names import list_models
from app.plugins.conformance.open_inference import messages as oip
from app.plugins.conformance.options import ConformanceOptions
from app.plugins.conformance.probe import GrpcChannel, Probe, Target
from tests.plugins.conformance.engines import Respond, check_engine
from tests.plugins.conformance.tiny_engine import tiny_engine

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1]}
METADATA = {"name": "m", "platform": "p", "inputs": [TENSOR], "outputs": [TENSOR]}


def findings(protocol: str, reply: Respond, **target: Any) -> dict[str, Finding]:
    """Return the findings for an engine by the ids of the checks."""
    return {finding.check.id: finding for finding in check_engine(protocol, reply, **target).findings}


def with_metadata(metadata: object, infer: Callable[[bytes], object]) -> Respond:
    """Answer GET with metadata, and POST with what `infer` returns for the body: 400 for None."""

    def reply(request: httpx.Request) -> httpx.Response:
        answer = metadata if request.method == "GET" else infer(request.content)
        return httpx.Response(400, json={"error": "no"}) if answer is None else httpx.Response(200, json=answer)

    return reply


@pytest.mark.parametrize("protocol", ["v2", "v1", "chariot-v2-kserve"])
def test_model_name_is_encoded_in_paths(protocol: str) -> None:
    paths: set[bytes] = set()

    def record(request: httpx.Request) -> httpx.Response:
        paths.add(request.url.raw_path)
        return httpx.Response(404, json={"error": "no"})

    findings(protocol, record, model="org/a ?#\n")
    assert any(b"/models/org%2Fa%20%3F%23%0A" in path or b"/m-org%2Fa%20%3F%23%0A/" in path for path in paths), paths
    assert all(b"org/a" not in path for path in paths)


def test_models_that_are_not_loaded_are_not_listed() -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/v2/repository/index":
            return httpx.Response(404)
        names = ["loaded"] if json.loads(request.content).get("ready") else ["loaded", "unloaded"]
        return httpx.Response(200, json=[{"name": name} for name in names])

    with httpx.Client(transport=httpx.MockTransport(reply)) as client:
        assert list_models(Probe(client, Target(url="http://engine.local"))) == ["loaded"]


@pytest.mark.parametrize(("protocol", "check"), [("v1", "V1-005"), ("v2", "V2-008")])
def test_rejected_request_of_the_user_proves_nothing(protocol: str, check: str) -> None:
    request = {"instances": [1], "inputs": []}
    finding = findings(protocol, with_metadata(METADATA, lambda _: None), request=request)[check]
    assert finding.verdict is CheckVerdict.NOT_TESTED
    assert finding.reason.startswith('The engine rejects the request, with 400 {"error":"no"}')
    assert finding.reason.endswith("; give a body that it accepts with --request")


def test_column_for_a_declared_row_fits_its_shape() -> None:
    declared = {**METADATA, "inputs": [TENSOR], "outputs": [{**TENSOR, "shape": [-1]}]}
    column = {**TENSOR, "shape": [2, 1], "data": [1, 2]}
    reply = with_metadata(declared, lambda _: {"outputs": [column]})
    assert findings("v2", reply)["V2-S04"].verdict is CheckVerdict.PASSED


def test_fields_of_another_task_type_than_the_given_one_are_named() -> None:
    item = {"label": "a", "score": 0.5, "box": {"xmin": 1, "ymin": 1, "xmax": 2, "ymax": 2}}
    reply = with_metadata({}, lambda _: {"output": [item]})
    finding = findings("chariot-v2", reply, task_type="IMAGE_CLASSIFICATION")["CV2-I17"]
    assert 'these are probably items of OBJECT_DETECTION, got ["box"]' in finding.reason


def test_parameters_of_the_given_request_are_sent_with_those_of_checks() -> None:
    given = {"inputs": [{**TENSOR, "data": [1]}], "parameters": {"needed": 1}}
    reply = with_metadata(METADATA, lambda body: {"outputs": given["inputs"]} if b'"needed"' in body else None)
    assert findings("v2", reply, request=given)["V2-S08"].verdict is CheckVerdict.PASSED


def test_parameters_of_a_given_message_are_sent_with_those_of_checks() -> None:
    parameters = {"needed": {"int64Param": "1"}}
    target = Target(url="grpc://engine.local", model="m", request={"inputs": [], "parameters": parameters})
    with httpx.Client() as client:
        probe = Probe(client, target, transport=GrpcChannel(None, (), 1))
        request = oip.build_request(probe, parameters={"unknown": {"int64_param": 2}})
    message = message_class("inference.ModelInferRequest")(**request)
    assert {name: value.int64_param for name, value in message.parameters.items()} == {"needed": 1, "unknown": 2}


def test_other_fields_of_given_instances_are_sent() -> None:
    def predict(content: bytes) -> object:
        body = json.loads(content)
        return {"predictions": body["instances"]} if body.get("signature_name") == "other" else None

    request = {"signature_name": "other", "instances": [1, 2]}
    assert findings("v1", with_metadata({}, predict), request=request)["V1-005"].verdict is CheckVerdict.PASSED


@pytest.mark.parametrize("task_type", [None, "IMAGE_TEXT_TO_TEXT"])
def test_model_that_requires_prompts_gets_them(task_type: str | None) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        prompts = json.loads(request.content or b'{"parameters": {}}')["parameters"].get("prompts")
        if not prompts:
            return httpx.Response(400, json={"detail": "no prompts"})
        return httpx.Response(200, json={"output": [{"prompt": prompt, "answer": "a"} for prompt in prompts]})

    found = findings("chariot-v2", reply, task_type=task_type)
    assert [found[f"CV2-{number}"].verdict for number in ("001", "I08", "I09")] == [CheckVerdict.PASSED] * 3


@pytest.mark.parametrize("recovers", [True, False])
def test_engine_that_closes_the_connection_after_invalid_json_recovers_if_it_answers_again(recovers: bool) -> None:
    closed: list[bytes] = []

    def reply(request: httpx.Request) -> httpx.Response:
        try:
            inputs = json.loads(request.content or b"{}").get("inputs", [])
        except ValueError:
            closed.append(request.content)
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.") from None
        if request.method == "POST" and not inputs:
            return httpx.Response(400, json={"error": "no inputs"})
        items = [{"label": "a", "score": 0.5}] if recovers or not closed else []
        return httpx.Response(200, json={"outputs": [{"name": tensor["name"], "data": [items]} for tensor in inputs]})

    found = findings("chariot-v2-kserve", reply)
    assert closed
    assert found["CV2K-055"].verdict is CheckVerdict.FAILED
    assert found["CV2K-060"].verdict is (CheckVerdict.PASSED if recovers else CheckVerdict.FAILED)


@pytest.mark.parametrize("text", ["no JSON", "[" * 10_000])
def test_text_that_cannot_be_decoded_is_not_read_as_items(text: str) -> None:
    answer = {"outputs": [{"name": "x", "data": [text]}]}
    finding = findings("chariot-v2-kserve", lambda _: httpx.Response(200, json=answer))["CV2K-015"]
    assert finding.reason.startswith(f'data holds text that is not JSON: "{text[:100]}')


def test_version_that_fits_no_path_fails_its_check() -> None:
    answer = {**METADATA, "versions": ["1\n"], "outputs": [{**TENSOR, "data": [1]}]}
    finding = findings("v2", lambda _: httpx.Response(200, json=answer))["V2-027"]
    assert finding.reason.startswith("No answer: Invalid non-printable ASCII character in URL")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html>", "The model's name is not known; give it with --model"),
        (bytes(8_000_001), "No answer: The answer is longer than 8000000 bytes"),
    ],
)
def test_answers_that_list_no_models_are_reported(content: bytes, reason: str) -> None:
    assert findings("v2", lambda _: httpx.Response(200, content=content), model="")["V2-005"].reason == reason


def generated_request(datatype: str) -> dict[str, Any]:
    """Return the request over gRPC for a model with one input of `datatype`."""
    inputs = [{"name": "x", "datatype": datatype, "shape": [-1, 2]}]
    metadata = message_class("inference.ModelMetadataResponse")(inputs=inputs).SerializeToString()
    channel = Mock(call=Mock(return_value=(0, "", [metadata])))
    with httpx.Client() as client:
        return oip.build_request(Probe(client, Target(url="grpc://engine.local", model="m"), transport=channel))


def test_inputs_without_a_contents_field_are_generated_raw() -> None:
    assert generated_request("FP16")["raw_input_contents"] == [bytes(4)]
    with pytest.raises(InconclusiveError, match="The datatype of x is not known"):
        generated_request("STRING")


def test_given_request_of_another_message_is_reported() -> None:
    with pytest.raises(InconclusiveError, match="--request is not a ModelInferRequest in protobuf's JSON"):
        parse_request({"messages": []}, "inference.ModelInferRequest")


def test_report_of_a_model_with_a_slash_is_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tiny_engine(model="org/half") as url:
        conform(url, options=ConformanceOptions(protocol="v1"), all_models=True, json=tmp_path / "report.json")
    assert json.loads((tmp_path / "report.org%2Fhalf.json").read_bytes())["model"] == "org/half"


@pytest.mark.parametrize(
    ("model", "limit", "message"),
    [
        ("", 400, "the server lists no models, or rejects the credentials; choose one"),
        ("half", 1, "The limit of 1 requests is reached"),
    ],
)
def test_models_that_cannot_be_listed_are_reported(
    capsys: pytest.CaptureFixture[str], model: str, limit: int, message: str
) -> None:
    with tiny_engine(model=model) as url, pytest.raises(SystemExit):
        conform(url, options=ConformanceOptions(protocol="v1", max_requests=limit), all_models=True)
    assert message in capsys.readouterr().err
