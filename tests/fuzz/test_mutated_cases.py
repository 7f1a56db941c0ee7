"""Mutate the golden cases of every protocol, over HTTP and gRPC: no answer is an unexplained 5xx or reveals internals.

Each request that finds a defect becomes a golden case in `fixtures/wire`.
"""

import json
import socket
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from litestar.testing import TestClient

from app.core.settings.server import DEMO_MODELS
from app.plugins.grps.messages import GrpsMessage
from tests.support.data.golden import CASES
from tests.support.servers.apps import ALL_MODELS, app_with_models, model_source
from tests.support.servers.grpc_server import (
    IMAGE,
    GrpcTestClient,
    build_engine_from_sources,
    image_request,
    load_test_model,
    number_request,
    run_grpc_server,
)
from tests.support.servers.server_process import run_server

EXPLAINED = (501, 503, 504)
"""No explainer or an unknown method, a model that is not ready, the client's own deadline."""
VALUES: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, 0.5, 1e308, float("nan"), float("inf"), "", "x", "\0", "\ud800",
    "a" * 5000, [], {}, [[]], [None], {"": {}}, {"b64": "%%%"}, {"b64": ""}, [[1, 2], [3]], ["1", 2],
]  # fmt: skip
STEADY = settings(
    max_examples=50, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip
PROTOCOLS = sorted({case.protocol for case in CASES})
# Raw requests that once broke the server, and the expected statuses.
RAW: dict[str, tuple[bytes, int]] = {
    "host with an invalid port": (
        b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1:99999\r\nConnection: close\r\n\r\n",
        404,
    ),
    "rejected while it waits to go on": (
        b"POST /v2/models/detector/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        400,
    ),
    "rubbish behind a request": (
        b"POST /v2/models/detector/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}\0\0\0\r\n\r\n",
        400,
    ),
}

Places = list[tuple[Any, Any]]


def places(document: Any) -> Places:
    """Return the container and the key of every value of a document."""
    found: Places = []
    pending = [document]
    while pending and len(found) < 1000:
        container = pending.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        found += [(container, key) for key in keys]
        pending += [container[key] for key in keys if isinstance(container[key], dict | list)]
    return found


def mutated_json(draw: Callable[[Any], Any], body: bytes) -> bytes:
    """Change one to three values of a document: replace, remove, rename, repeat or nest them."""
    document = json.loads(body)
    for _ in range(draw(st.integers(1, 3))):
        if not isinstance(document, dict | list) or not (found := places(document)):
            break
        container, key = found[draw(st.integers(0, len(found) - 1))]
        action = draw(st.sampled_from(["replace", "replace", "remove", "rename", "repeat", "nest"]))
        if action == "replace":
            container[key] = deepcopy(VALUES[draw(st.integers(0, len(VALUES) - 1))])
        elif action == "remove":
            del container[key]
        elif action == "rename" and isinstance(container, dict):
            container[draw(st.sampled_from(["", "x", "parameters", str(key).upper()]))] = container.pop(key)
        elif action == "repeat":
            container[key] = [deepcopy(container[key])] * draw(st.sampled_from([2, 300]))
        else:
            for _ in range(draw(st.sampled_from([1, 80]))):
                container[key] = [container[key]]
    return json.dumps(document).encode()


def mutated_bytes(draw: Callable[[Any], Any], body: bytes) -> bytes:
    """Cut, remove, repeat, insert or change bytes, also of texts that are not UTF-8."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.integers(0, 12)))
        inserted = draw(
            st.sampled_from([b"", b"\0", b"\xff\xfe", b"\xff" * 9, b'"', b"{", b"1e999", body[start:end] * 2])
        )
        body = draw(st.sampled_from([body[:start], body[:start] + inserted + body[end:]]))
    return body


def mutate(draw: Callable[[Any], Any], body: bytes) -> bytes:
    try:
        json.loads(body)
    except ValueError:
        return mutated_bytes(draw, body)
    return draw(st.sampled_from([mutated_json, mutated_json, mutated_bytes]))(draw, body)


def assert_honest(response: httpx.Response) -> None:
    assert response.status_code < 500 or response.status_code in EXPLAINED, response.text
    if response.status_code >= 400:
        assert response.text, response.status_code
        assert "Traceback" not in response.text
        assert "site-packages" not in response.text


@pytest.fixture(scope="module", params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> Iterator[tuple[str, TestClient[Any]]]:
    name: str = request.param
    with TestClient(app_with_models(ALL_MODELS, name)) as client:
        yield name, client


@STEADY
@given(data=st.data())
def test_mutated_case_is_answered_or_rejected(protocol: tuple[str, TestClient[Any]], data: st.DataObject) -> None:
    name, client = protocol
    cases = [case for case in CASES if case.protocol == name and case.settings.get("status", 200) != 500]
    case = data.draw(st.sampled_from([case for case in cases if case.body()[0]]))
    body, headers = case.body()
    if "content-encoding" in headers or data.draw(st.booleans()):
        body = mutated_bytes(data.draw, body)
    else:
        body = mutate(data.draw, body)
    if length := data.draw(st.sampled_from(["", "", "", "-1", "2", "99999999999999999999"])):
        headers["inference-header-content-length"] = length
    assert_honest(client.request(case.settings["method"], case.settings["path"], content=body, headers=headers))


@pytest.fixture(scope="module")
def grpc_client() -> Iterator[GrpcTestClient]:
    sources = [model_source(name) for name in ("detector", "half_plus_two")]
    with run_grpc_server(build_engine_from_sources(sources, load_test_model)) as client:
        yield client


NUMBERS = {"name": "x", "dtype": 7, "shape": [1], "flat_float32": [1.5]}
GRPC_CALLS = [
    ("inference.GRPCInferenceService/ModelInfer", image_request("detector")),
    ("inference.GRPCInferenceService/ModelInfer", number_request([1.5], model="half_plus_two")),
    ("grps.protos.v1.GrpsService/Predict", GrpsMessage(model="detector", bin_data=IMAGE)),
    ("grps.protos.v1.GrpsService/Predict", GrpsMessage(model="half_plus_two", gtensors={"tensors": [NUMBERS]})),
]


@STEADY
@given(data=st.data())
def test_mutated_grpc_message_is_answered_or_rejected(grpc_client: GrpcTestClient, data: st.DataObject) -> None:
    method, message = data.draw(st.sampled_from(GRPC_CALLS))
    try:
        grpc_client.call_bytes(f"/{method}", mutated_bytes(data.draw, message.SerializeToString()))
    except grpc.RpcError as error:
        failed: Any = error
        assert failed.code() not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL), failed.details()
        assert "Traceback" not in failed.details()


def test_raw_requests_that_once_broke_the_server_are_rejected(tmp_path: Path) -> None:
    with run_server("--model", str(DEMO_MODELS / "detector")) as server:
        host, port = server.address.removeprefix("http://").split(":")
        for name, (request, status) in RAW.items():
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(request)
                answer = b""
                while data := connection.recv(65536):
                    answer += data
            assert f"HTTP/1.1 {status} ".encode() in answer, (name, answer)
        assert server.stop() == 0
    assert not [line for line in server.log if "exception" in line or not line.startswith("{")]
