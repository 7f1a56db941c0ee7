"""Clients of each protocol, tested with the requests and answers of the golden exchanges, and with a real server."""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import httpx
import pytest

from app.clients.chariot import CHARIOT_V2
from app.clients.client import PROTOCOLS, open_client
from app.clients.http_client import http_client
from app.clients.protocol import Client, InferenceClientError, Retries, ServerUnavailableError
from app.core.proto import message_class
from tests.support.data.golden import CASES

HTTP_PROTOCOLS = {name: protocol for name, protocol in PROTOCOLS.items() if not protocol.rpc}
FOUND = [{"label": "red", "score": 0.9, "xmin": 10.0, "ymin": 8.0, "xmax": 30.0, "ymax": 40.0}]


def golden(protocol: str, name: str) -> Any:
    (case,) = (case for case in CASES if (case.protocol, case.name) == (protocol, name))
    return json.loads(case.files["response.json"])


def ask_once(
    protocol: str, answer: Any, *, status: int = 200, parameters: Mapping[str, object] | None = None
) -> tuple[Any, httpx.Request]:
    """Return the records that a client reads from an answer, and the request that it sent."""
    requests: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return httpx.Response(status, content=content)

    with httpx.Client(transport=httpx.MockTransport(respond), timeout=60) as http:
        client = http_client(http, "http://engine.local/base/", HTTP_PROTOCOLS[protocol], "Detector", Retries())
        return client(b"picture", parameters or {}), requests[0]


@pytest.mark.parametrize(
    ("protocol", "folder", "case", "path"),
    [
        ("chariot-v2-kserve", "chariot-v2-kserve", "detection", "/base/v2/models/m-detector/infer"),
        ("chariot-v2", "chariot-v2", "bare-image", "/base/v2/models/m-detector/infer"),
        ("v1", "kserve-v1", "detection-b64", "/base/v1/models/Detector:predict"),
    ],
)
def test_golden_answer_is_parsed(protocol: str, folder: str, case: str, path: str) -> None:
    records, request = ask_once(protocol, golden(folder, case))
    assert records[0] == FOUND[0]
    assert request.url.path == path


def test_records_are_parsed_from_each_answer_form() -> None:
    text = json.dumps(FOUND)
    for data in ([text], [FOUND], FOUND):
        assert ask_once("v2", {"outputs": [{"data": data}]})[0] == FOUND
    assert ask_once("chariot-v2-kserve", {"outputs": [{"data": [[]]}]})[0] == []


def test_parameters_are_sent_where_the_protocol_expects_them() -> None:
    parameters = {"top_k": 3, "prompts": ["What?"]}
    parameter_readers: dict[str, Callable[[Any], Any]] = {
        "chariot-v2-kserve": lambda body: body["inputs"][0]["parameters"],
        "chariot-v2": lambda body: body["parameters"],
        "v2": lambda body: body["inputs"][0]["parameters"],
        "v1": lambda body: body["instances"][0]["parameters"],
    }
    for protocol, read_parameters in parameter_readers.items():
        answers = {"outputs": [{"data": FOUND}], "output": FOUND, "predictions": [FOUND]}
        _, request = ask_once(protocol, answers, parameters=parameters)
        assert read_parameters(json.loads(request.content)) == parameters


@pytest.mark.parametrize("protocol", HTTP_PROTOCOLS)
def test_answer_without_records_is_rejected(protocol: str) -> None:
    for answer in (b"", b"null", b"[]", b"{}", b"9" * 400, b'{"outputs":[{"data":[[7]]}]}', b"[" * 9000, b"\xff"):
        with pytest.raises(InferenceClientError, match="The answer has no records"):
            ask_once(protocol, answer)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        *((body, "HTTP 404: none") for body in ({"error": "none"}, {"detail": "none"}, {"message": "none"})),
        (b"<html>", "HTTP 404: <html>"),
        (b"x" * 5000, r"HTTP 404: x{300}\.\.\."),
    ],
)
def test_error_answers_are_quoted(body: Any, message: str) -> None:
    with pytest.raises(InferenceClientError, match=message):
        ask_once("v2", body, status=404)


def test_busy_server_is_asked_again_after_the_seconds_of_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr("time.sleep", delays.append)
    waits = ["", "7", "1000", "Fri, 31 Dec 1999 23:59:59 GMT"]
    busy = zip((429, 503, 503, 503), waits, strict=True)
    responses = [httpx.Response(status, headers={"Retry-After": wait}) for status, wait in busy]
    responses.append(httpx.Response(200, content=json.dumps({"output": FOUND}).encode()))
    with httpx.Client(transport=httpx.MockTransport(lambda _: responses.pop(0))) as http:
        assert http_client(http, "http://engine", CHARIOT_V2, "m", Retries())(b"image", {}) == FOUND
    assert delays == [0.2, 7.0, 60.0, 1.6]


def test_persistent_client_waits_for_minutes_for_a_server_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    delays, reasons = list[float](), list[str]()
    monkeypatch.setattr("time.sleep", delays.append)

    failures: list[Exception] = [*([httpx.ConnectError("unreachable")] * 64), httpx.ReadTimeout("")]

    def respond(_: httpx.Request) -> httpx.Response:
        raise failures.pop(0)

    with httpx.Client(transport=httpx.MockTransport(respond)) as http:
        retries = Retries(persistent=True, on_wait=reasons.append)
        client = http_client(http, "http://engine", CHARIOT_V2, "m", retries)
        with pytest.raises(ServerUnavailableError, match="unreachable"):
            client(b"image", {})
        assert 290 < sum(delays) < 310
        assert {*reasons} == {"http://engine/v2/models/m-m/infer: unreachable"}
        with pytest.raises(InferenceClientError, match="infer: ReadTimeout"):
            client(b"image", {})


GRPC: Any = grpc
TOKEN = {"Authorization": "Bearer abc"}


class FakeServer(grpc.GenericRpcHandler):
    """Answer each call with the next of `outcomes`, which are bytes or a status, and keep the call's metadata."""

    def __init__(self, outcomes: Sequence[Any]) -> None:
        self.outcomes = [*outcomes]
        self.metadata: list[dict[str, Any]] = []

    def service(self, handler_call_details: Any) -> Any:
        def answer(_: bytes, context: Any) -> bytes:
            self.metadata.append(dict(handler_call_details.invocation_metadata))
            outcome = self.outcomes.pop(0)
            if not isinstance(outcome, bytes):
                context.abort(outcome, "no model")
            return outcome

        return GRPC.unary_unary_rpc_method_handler(answer)


@contextmanager
def connected(fake: FakeServer) -> Generator[Client]:
    server: Any = grpc.server(ThreadPoolExecutor(2), handlers=[fake])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with open_client(f"127.0.0.1:{port}", PROTOCOLS["v2-grpc"], "m", headers=TOKEN, timeout=20) as client:
            yield client
    finally:
        server.stop(None).wait()


def response_with(records: bytes) -> bytes:
    message = message_class("inference.ModelInferResponse")()
    message.outputs.add(name="predictions", datatype="BYTES", shape=[1]).contents.bytes_contents.append(records)
    return message.SerializeToString()


def test_busy_server_is_retried_with_the_headers() -> None:
    fake = FakeServer([grpc.StatusCode.RESOURCE_EXHAUSTED, response_with(b'[{"label": "cat", "score": 1}]')])
    with connected(fake) as infer:
        assert infer(b"x", {}) == [{"label": "cat", "score": 1}]
    assert [metadata["authorization"] for metadata in fake.metadata] == ["Bearer abc"] * 2


@pytest.mark.parametrize(
    "outcome", [b"\xff\xff", b"", *map(response_with, (b"7", b"\xff", b"[" * 5000)), grpc.StatusCode.NOT_FOUND]
)
def test_response_without_records_is_an_error(outcome: Any) -> None:
    message = "The answer has no records" if isinstance(outcome, bytes) else "NOT_FOUND: no model"
    with connected(FakeServer([outcome])) as infer, pytest.raises(InferenceClientError, match=message):
        infer(b"x", {})
