"""Requests that an overloaded server rejects by their headers."""

import json
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.protocols import CHARIOT_PROTOCOLS
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.asgi import create_app, create_listener_app
from app.core.server.listen import open_listen_socket
from app.core.server.load_shedding import OVERLOADED, ReadPauses
from app.core.server.serving import Listener
from tasks.inference.error import ErrorKind, InferenceError
from tests.support.polling import wait_until
from tests.support.protocols import LISTENERS, PROTOCOLS, main_port_protocols
from tests.support.servers.auth_apps import access_with_keys
from tests.support.servers.http_connections import local_transport, parse_responses, read_until_closed, run_app
from tests.support.servers.limited_engines import full_engine

MIB = 1024 * 1024
FULL = "The server has 1 requests in flight and takes no more; try again later"
INFER = "/v2/models/detector/infer"


@contextmanager
def serving(
    engine: Engine, protocol: str = "chariot-v2-kserve", access: HttpAccess | None = None
) -> Generator[HTTPConnection]:
    """Serve the port of a protocol, and yield a connection to it."""
    with open_listen_socket("127.0.0.1", 0) as listen_socket:
        listener = next((listener for listener in LISTENERS if listener.name == protocol), None)
        if listener is not None:
            app = create_listener_app(engine, listener, 64 * MIB, access)
        else:
            app = create_app(engine, main_port_protocols(protocol), CollectorRegistry(), 64 * MIB, access=access)
        connection = HTTPConnection("127.0.0.1", listen_socket.getsockname()[1], timeout=60)
        with run_app(Listener(app=app), local_transport(), listen_socket), closing(connection):
            yield connection


def post(connection: HTTPConnection, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


TARGETS = {
    "chariot-v2-kserve": ["/infer", "/v2/models/m-detector/infer/", "/v2/models/m-x/versions/1/infer"],
    "chariot-v2": ["/infer", "/v2/models/m-detector/infer"],
    "kserve-v2": [INFER, "/v2/models/detector/versions/1/infer"],
    "kserve-v1": ["/v1/models/detector:predict"],
    "grps": ["/grps/v1/infer/predict"],
    "openai": ["/openai/v1/chat/completions", "/v1/embeddings"],
    "tensorflow-serving": ["/v1/models/detector:predict", "/v1/models/detector/versions/1:classify"],
}


@pytest.mark.parametrize("port", [*CHARIOT_PROTOCOLS, *(listener.name for listener in LISTENERS)])
def test_rejection_has_the_shape_of_the_protocol(port: str) -> None:
    lean = [protocol for protocol in (*PROTOCOLS, *LISTENERS) if protocol.name == port]
    protocols = main_port_protocols(port) if port == "chariot-v2-kserve" else lean
    with full_engine("detector") as (engine, _), serving(engine, port) as connection:
        for protocol in protocols:
            for path in TARGETS[protocol.name]:
                status, headers, body = post(connection, path, x_request_id="an-id", chariot_inference_base_id="base")
                assert (status, headers["retry-after"], headers["x-request-id"]) == (429, "1", "an-id")
                assert headers["chariot-inference-base-id"] == "base"
                assert body == protocol.error_body(InferenceError(ErrorKind.OVERLOADED, FULL))


def test_only_inferences_are_rejected() -> None:
    with full_engine("detector") as (engine, _), serving(engine) as connection:
        assert post(connection, "/v1/models/detector:explain")[0] != 429
        assert post(connection, "/v2/repository/index")[0] == 200
        connection.request("GET", "/v2/models/detector/ready")
        assert connection.getresponse().status == 200


def test_rejection_of_a_secured_server_does_not_reveal_model_names(tmp_path: Any) -> None:
    access = HttpAccess(access_with_keys(tmp_path))
    with full_engine("detector") as (engine, _), serving(engine, access=access) as connection:
        for path in (INFER, "/v2/models/missing/infer"):
            status, _, body = post(connection, path)
            assert (status, json.loads(body)) == (429, {"error": OVERLOADED})


def test_rejections_are_counted_and_observed_together() -> None:
    metrics = CollectorRegistry()
    labels = {"protocol": "kserve-v1", "model": "detector", "version": "", "outcome": ErrorKind.OVERLOADED.value}
    with full_engine("detector", metrics=metrics) as (engine, observer), serving(engine) as connection:
        for name in ("first", "second", "third"):
            post(connection, "/v1/models/detector:predict", x_request_id=name)
        wait_until(lambda: metrics.get_sample_value("charioteer_inferences_total", labels) == 3)
        event = observer.events[-1]
        assert (event.count, event.model_name, event.request_id) == (3, "detector", "first")


def test_rejected_client_has_its_answer_before_its_body_is_read() -> None:
    with full_engine("detector") as (engine, _), serving(engine) as connection:
        head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n".encode()
        connection.connect()
        connection.sock.sendall(head)
        assert connection.sock.recv(65536).startswith(b"HTTP/1.1 429 ")


def test_connection_is_kept_after_a_rejected_body_and_read_at_a_limited_rate() -> None:
    with full_engine("detector") as (engine, _), serving(engine) as connection:
        began = time.monotonic()
        for _ in range(20):
            assert post(connection, INFER, b"x" * 200_000)[0] == 429
        # 125 rejected connections are read again each second.
        assert time.monotonic() - began > 15 / 125
        assert post(connection, "/v2/repository/index")[0] == 200


def test_connection_is_closed_if_the_body_is_not_worth_reading() -> None:
    heads = [
        f"Content-Length: {MIB + 1}",
        "Content-Length: 10\r\nExpect: 100-continue",
        "Transfer-Encoding: chunked",
        "Content-Length: 0\r\nConnection: close",
    ]
    with full_engine("detector") as (engine, _), serving(engine) as connection, ExitStack() as stack:
        address = (connection.host, connection.port)
        opened = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in heads]
        for client, head in zip(opened, heads, strict=True):
            client.sendall(f"POST {INFER} HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n".encode())
        for client in opened:
            received = read_until_closed(client)
            assert b"connection: close\r\n" in received
            assert b"100 Continue" not in received
            assert [status for status, _ in parse_responses(received)] == [429]


def test_client_that_sends_all_of_a_large_body_reads_the_rejection() -> None:
    size = 3 * MIB // 2
    with full_engine("detector") as (engine, _), serving(engine) as connection:
        connection.connect()
        head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode()
        connection.sock.sendall(head + b"x" * size)
        assert [status for status, _ in parse_responses(read_until_closed(connection.sock))] == [429]


def test_pauses_grow_up_to_the_maximum() -> None:
    pauses_of = ReadPauses()
    assert pauses_of.next() == 0
    pauses = [pauses_of.next() for _ in range(2000)]
    # At the maximum, pauses get shorter by the time between two calls.
    below_maximum = [pause for pause in pauses if pause < 1.9]
    assert below_maximum == sorted(below_maximum)
    assert 1.9 < pauses[-1] <= 2
