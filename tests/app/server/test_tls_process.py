"""A real server over mutual TLS on all of its ports, whose certificate is renewed while it runs."""

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import httpx
import pytest

from tests.support.authority import Authority, serial
from tests.support.chariot import image_input
from tests.support.server_process import ROOT, ServerProcess, serving

pytestmark = pytest.mark.slow

READY = "/inference.GRPCInferenceService/ServerReady"
Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Pair:
    return authority.issue("client")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[ServerProcess]:
    cert, key = authority.issue("server")
    options = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(authority.file))
    with serving(*options, "--handshake-timeout", "2", "--max-grpc-streams", "4") as running:
        yield running
        assert running.stop() == 0


def over_http(server: ServerProcess, context: ssl.SSLContext) -> httpx.Client:
    return httpx.Client(base_url=server.address, verify=context, trust_env=False, timeout=30)


def channel(server: ServerProcess, authority: Authority, shown: Pair | None) -> grpc.Channel:
    server.address  # noqa: B018  waits for it
    cert, key = (None, None) if shown is None else (each.read_bytes() for each in shown)
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), key, cert)
    return grpc.secure_channel(server.grpc_address, credentials, options=[("grpc.enable_http_proxy", 0)])


def ready(over: grpc.Channel, **options: Any) -> bytes:
    return cast("bytes", over.unary_unary(READY)(b"", timeout=20, **options))


def tensorflow_serving(server: ServerProcess) -> str:
    line = next(each for each in list(server.log) if each.startswith("  TensorFlow Serving"))
    return line.split()[-1]


def test_every_port_answers_who_shows_a_certificate(server: ServerProcess, authority: Authority, client: Pair) -> None:
    with over_http(server, authority.context(client)) as http:
        assert server.address.startswith("https://")
        assert http.post("/v2/models/detector/infer", json={"inputs": [image_input()]}).status_code == 200
        assert http.get(f"{tensorflow_serving(server)}/v1/models/half_plus_two").status_code == 200
        assert "charioteer_certificate_expiry_timestamp_seconds" in http.get("/metrics").text
    with channel(server, authority, client) as over:
        assert ready(over) == b"\x08\x01"


def test_no_port_answers_who_shows_none(server: ServerProcess, authority: Authority) -> None:
    for address in (server.address, tensorflow_serving(server)):
        with over_http(server, authority.context()) as http, pytest.raises(httpx.TransportError):
            http.get(f"{address}/health")
    with channel(server, authority, None) as over, pytest.raises(grpc.RpcError) as failed:
        ready(over)
    assert cast("grpc.Call", failed.value).code() is grpc.StatusCode.UNAVAILABLE


def test_grpc_without_tls_is_not_answered(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.grpc_address) as over, pytest.raises(grpc.RpcError) as failed:
        ready(over)
    assert cast("grpc.Call", failed.value).code() is grpc.StatusCode.UNAVAILABLE


def test_the_page_reaches_grpc_and_the_other_port(server: ServerProcess, authority: Authority, client: Pair) -> None:
    with over_http(server, authority.context(client)) as http:
        path = "/page/grpc/inference.GRPCInferenceService/ModelInfer"
        told = http.post(path, content=json.dumps({"model_name": "absent"}), headers={"Content-Type": "text/plain"})
        assert "NOT_FOUND" in told.json()["error"]
        assert http.get("/page/tensorflow-serving/v1/models/half_plus_two").status_code == 200


def test_a_renewed_certificate_is_taken_on_every_port(
    server: ServerProcess, authority: Authority, client: Pair
) -> None:
    context = authority.context(client)
    ports = [server.address, f"https://{server.grpc_address}", tensorflow_serving(server)]
    with over_http(server, context) as kept, channel(server, authority, client) as over:
        assert kept.get("/health").status_code == 200
        assert ready(over) == b"\x08\x01"
        before = [shown(each, context) for each in ports]
        authority.issue("server")
        while any(shown(each, context) == old for each, old in zip(ports, before, strict=True)):
            pass
        assert len({shown(each, context) for each in ports}) == 1
        assert kept.get("/health").status_code == 200
        assert ready(over) == b"\x08\x01"


def test_who_never_says_a_word_of_http_2_is_ended(server: ServerProcess, authority: Authority, client: Pair) -> None:
    host, _, port = server.grpc_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as silent:
        while silent.recv(65536):
            pass


def test_metadata_beyond_the_limit_is_refused(server: ServerProcess, authority: Authority, client: Pair) -> None:
    with channel(server, authority, client) as over:
        assert ready(over, metadata=[("x", "y" * 60_000)]) == b"\x08\x01"
        with pytest.raises(grpc.RpcError) as failed:
            ready(over, metadata=[("x", "y" * 66_000)])
        assert cast("grpc.Call", failed.value).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ready(over) == b"\x08\x01"


def test_calls_beyond_the_limit_of_one_connection_wait_their_turn(
    server: ServerProcess, authority: Authority, client: Pair
) -> None:
    watch = "/grpc.health.v1.Health/Watch"
    with channel(server, authority, client) as over:
        open_calls: list[Any] = [over.unary_stream(watch)(b"") for _ in range(4)]
        for each in open_calls:
            assert next(iter(each))
        with pytest.raises(grpc.RpcError) as late:
            over.unary_unary(READY)(b"", timeout=1)
        assert cast("grpc.Call", late.value).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        with channel(server, authority, client) as other:
            assert ready(other) == b"\x08\x01"
        waiting = cast("Any", over).unary_unary(READY).future(b"", timeout=20)
        open_calls[0].cancel()
        assert waiting.result() == b"\x08\x01"
        for each in open_calls:
            each.cancel()


def shown(address: str, context: ssl.SSLContext) -> str:
    """The serial number of the certificate that a port shows now."""
    host, _, port = address.removeprefix("https://").rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as secured,
    ):
        return serial(secured)


def test_the_check_of_the_image_asks_over_tls(server: ServerProcess) -> None:
    port = server.address.rpartition(":")[2]
    variables = {"CHARIOTEER_HTTP_PORT": port, "CHARIOTEER_TLS_CERT": "c", "CHARIOTEER_TLS_CLIENT_CA": "c"}
    command = [sys.executable, ROOT / "deploy" / "healthcheck.py"]
    assert subprocess.run(command, env=variables, check=False).returncode == 0
    del variables["CHARIOTEER_TLS_CLIENT_CA"]
    assert subprocess.run(command, env=variables, check=False, stderr=subprocess.DEVNULL).returncode == 1
