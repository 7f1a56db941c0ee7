"""Requests that are answered directly get the same response as from the application."""

import base64
import gzip
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from tests.support.servers.server_process import ROOT, ServerProcess, run_server

IMAGE = (ROOT / "fixtures/images/scene.jpg").read_bytes()
TEXT = base64.b64encode(IMAGE).decode()
ID = "0123456789"
JSON = "application/json"


def json_body(**members: object) -> bytes:
    return json.dumps(members).encode()


CHARIOT_BODY = json_body(
    inputs=[
        {
            "name": "image",
            "datatype": "BYTES",
            "shape": [1],
            "data": [TEXT],
            "parameters": {"action": "detect", "metadata": '{"a": 1}'},
        }
    ]
)
CHAT, QUESTION = "/v1/chat/completions", "What is in the picture?"


def chat_body(**members: object) -> bytes:
    image = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{TEXT}"}}
    content = [{"type": "text", "text": QUESTION}, image]
    return json_body(**{"model": "vlm", "messages": [{"role": "user", "content": content}], **members})


V2_BODY = json_body(inputs=[{"name": "image", "datatype": "BYTES", "shape": [1], "data": [TEXT]}])
REQUESTS = {
    "chariot": ("/v2/models/m-detector/infer", JSON, CHARIOT_BODY),
    "kserve v2": ("/v2/models/detector/infer", JSON, V2_BODY),
    "kserve v1": ("/v1/models/detector:predict", JSON, json_body(instances=[{"image": {"b64": TEXT}}])),
    "kserve v1 image": ("/v1/models/detector:predict", "image/jpeg", IMAGE),
    "grps": ("/grps/v1/infer/predict", "application/octet-stream", IMAGE),
    "invalid JSON": ("/v2/models/m-detector/infer", JSON, b"{"),
    "empty body": ("/v2/models/m-detector/infer", JSON, b""),
    "no image": ("/v2/models/detector/infer", JSON, json_body(inputs=[])),
    "truncated image": ("/v1/models/detector:predict", "image/jpeg", IMAGE[:999]),
    "unknown model": ("/v2/models/missing/infer", JSON, V2_BODY),
    "unknown Chariot id": ("/v2/models/m-missing/infer", JSON, CHARIOT_BODY),
    "unknown model of v1": ("/v1/models/missing:predict", JSON, b"{}"),
    "generate": ("/v2/models/vlm/generate", JSON, json_body(text_input=QUESTION, image=TEXT)),
    "generate of a detector": ("/v2/models/detector/generate", JSON, json_body(text_input=QUESTION, image=TEXT)),
    "chat with an invalid body": (CHAT, JSON, b"{"),
    "chat without a model": (CHAT, JSON, chat_body(model=None)),
    "chat with an unknown model": (CHAT, JSON, chat_body(model="missing")),
    "chat with a detector": (CHAT, JSON, chat_body(model="detector")),
    "chat with an unsupported member": (CHAT, JSON, chat_body(n=2)),
    "invalid stream": (CHAT, JSON, chat_body(stream="yes")),
    "stream of an unknown model": (CHAT, JSON, chat_body(model="missing", stream=True)),
    "completion of an image model": ("/v1/completions", JSON, json_body(model="vlm", prompt="a")),
}


PREDICT_BODY = json_body(instances=[{"b64": TEXT}])
TENSORFLOW_SERVING_REQUESTS = {
    "predict": ("detector:predict", PREDICT_BODY),
    "predict columns": ("half_plus_two:predict", json_body(inputs=[1.0, 2.0])),
    "classify": ("classifier:classify", json_body(examples=[{"image": {"b64": TEXT}}])),
    "regress": ("half_plus_two:regress", json_body(examples=[{"x": 1.0}])),
    "invalid JSON": ("detector:predict", b"{"),
    "no image": ("detector:predict", json_body(instances=[{"b64": "AAAA"}])),
    "unknown model": ("missing:predict", PREDICT_BODY),
    "unknown signature": ("detector:predict", json_body(signature_name="missing", instances=[{"b64": TEXT}])),
    "slash at the end": ("detector:predict/", PREDICT_BODY),
    "version": ("detector/versions/1:predict", PREDICT_BODY),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with run_server("--model-repository", "fixtures/models", "--tensorflow-serving-cors", "*") as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=60) as http_client:
        yield http_client


def essence(response: httpx.Response) -> tuple[int, Mapping[str, str], Any]:
    headers = {name: value for name, value in response.headers.items() if name not in ("date", "content-length")}
    return response.status_code, headers, response.content


@pytest.mark.parametrize("accepted", ["identity", "gzip, deflate"])
@pytest.mark.parametrize("name", REQUESTS)
def test_direct_response_equals_that_of_the_application(
    client: httpx.Client, server: ServerProcess, name: str, accepted: str
) -> None:
    path, content_type, body = REQUESTS[name]
    headers = {
        "content-type": content_type,
        "accept-encoding": accepted,
        "x-request-id": ID,
        "chariot-inference-base-id": "base",
    }
    direct = client.post(path, content=body, headers=headers)
    # A referring page is a reason to ask the application.
    by_application = client.post(path, content=body, headers={**headers, "referer": f"{server.address}/"})
    assert essence(direct) == essence(by_application)
    assert direct.headers["x-request-id"] == ID


@pytest.mark.parametrize("accepted", ["identity", "gzip, deflate"])
@pytest.mark.parametrize("name", TENSORFLOW_SERVING_REQUESTS)
def test_direct_response_of_tensorflow_serving_equals_that_of_the_application(
    client: httpx.Client, server: ServerProcess, name: str, accepted: str
) -> None:
    path, body = TENSORFLOW_SERVING_REQUESTS[name]
    url = f"{server.tensorflow_serving_address}/v1/models/{path}"
    headers = {"content-type": JSON, "accept-encoding": accepted, "x-request-id": ID}
    direct = client.post(url, content=body, headers=headers)
    by_application = client.post(url, content=body, headers={**headers, "referer": f"{server.address}/"})
    assert essence(direct) == essence(by_application)
    assert direct.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("length", [0, 300_000])
@pytest.mark.parametrize("stream", [False, True])
def test_chat_completion_equals_that_of_the_application(
    client: httpx.Client, server: ServerProcess, stream: bool, length: int
) -> None:
    body = chat_body(stream=stream, padding="x" * length)
    headers = {"content-type": JSON, "x-request-id": ID}
    responses = [
        client.post(CHAT, content=body, headers=headers),
        client.post(CHAT, content=body, headers={**headers, "referer": f"{server.address}/"}),
    ]
    direct, by_application = [
        (response.status_code, dict(response.headers) | {"date": ""}, re.sub(r'"created":\d+', "", response.text))
        for response in responses
    ]
    assert direct == by_application
    assert direct[0] == 200
    assert direct[1]["content-type"] == ("text/event-stream; charset=utf-8" if stream else JSON)
    assert direct[2].endswith("data: [DONE]\n\n") is stream


def test_connection_continues_after_a_stream(client: httpx.Client, server: ServerProcess) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    bodies = [chat_body(stream=True), chat_body(), chat_body(stream=True)]
    messages = [
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (CHAT.encode(), len(body), body)
        for body in bodies
    ]
    last = b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection((host, int(port)), 60) as connection, connection.makefile("rb") as responses:
        connection.sendall(b"".join([*messages, last]))
        received = responses.read()
    assert received.count(b"HTTP/1.1 200 ") == 4
    assert received.count(b"[DONE]") == 2


def test_long_direct_response_is_compressed_for_clients_that_accept_it(client: httpx.Client) -> None:
    tensor = {
        "name": "image",
        "datatype": "BYTES",
        "shape": [1],
        "data": [TEXT],
        "parameters": {"metadata": "m" * 2000},
    }
    body = json_body(inputs=[tensor])
    headers = {"content-type": JSON, "accept-encoding": "gzip"}
    with client.stream("POST", "/v2/models/m-detector/infer", content=body, headers=headers) as response:
        raw = b"".join(response.iter_raw())
    assert (response.status_code, response.headers["content-encoding"]) == (200, "gzip")
    assert response.headers["vary"] == "Accept-Encoding"
    assert json.loads(gzip.decompress(raw))["outputs"][0]["parameters"] == tensor["parameters"]
    refusing = {**headers, "accept-encoding": "gzip;q=0, identity"}
    assert "content-encoding" not in client.post("/v2/models/m-detector/infer", content=body, headers=refusing).headers


def test_foreign_host_is_refused(client: httpx.Client) -> None:
    path, content_type, body = REQUESTS["chariot"]
    response = client.post(path, content=body, headers={"content-type": content_type, "host": "example.com"})
    assert response.status_code == 403


def test_foreign_host_in_an_absolute_target_is_refused(server: ServerProcess) -> None:
    path, content_type, body = REQUESTS["chariot"]
    host, port = server.address.removeprefix("http://").split(":")
    head = f"POST http://example.com{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 403 ")


def test_concurrent_requests_get_their_own_answers(client: httpx.Client) -> None:
    path, content_type, body = REQUESTS["chariot"]
    ids: list[tuple[str, str]] = []

    def send(number: int) -> None:
        headers = {"content-type": content_type, "x-request-id": str(number)}
        response = client.post(path, content=body, headers=headers)
        ids.append((str(number), response.json()["id"]))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ids) == 16
    assert all(sent == received for sent, received in ids)
