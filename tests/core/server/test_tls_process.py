"""A server process with mutual TLS on all ports, and renewal of its certificate."""

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

from tests.support.data.chariot import image_input
from tests.support.polling import wait_until
from tests.support.servers.certificate_authority import CertificateAuthority, peer_certificate_serial
from tests.support.servers.grpc_server import raises_status
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

pytestmark = pytest.mark.slow

READY = "/inference.GRPCInferenceService/ServerReady"
CertificateAndKey = tuple[Path, Path]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def client(authority: CertificateAuthority) -> CertificateAndKey:
    return authority.issue("client")


@pytest.fixture(scope="module")
def server(authority: CertificateAuthority, small_models: Path) -> Iterator[ServerProcess]:
    cert, key = authority.issue("server")
    models = ("--model-repository", str(small_models))
    options = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(authority.file))
    # Long enough for the handshakes of a busy machine, because a test waits for its end.
    with run_server(*models, *options, "--handshake-timeout", "6", "--max-grpc-streams", "4") as running:
        yield running
        assert running.stop() == 0


def http_client(server: ServerProcess, context: ssl.SSLContext) -> httpx.Client:
    return httpx.Client(base_url=server.address, verify=context, trust_env=False, timeout=30)


def channel(
    server: ServerProcess,
    authority: CertificateAuthority,
    client_pair: CertificateAndKey | None,
    address: str | None = None,
) -> grpc.Channel:
    """Return a channel to `address`, by default the gRPC port."""
    server.address  # noqa: B018  the property waits for the start
    cert, key = (None, None) if client_pair is None else (path.read_bytes() for path in client_pair)
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), key, cert)
    return grpc.secure_channel(address or server.grpc_address, credentials, options=[("grpc.enable_http_proxy", 0)])


def ready(grpc_channel: grpc.Channel, **options: Any) -> bytes:
    return cast("bytes", grpc_channel.unary_unary(READY)(b"", timeout=20, **options))


@pytest.fixture
def http(server: ServerProcess, authority: CertificateAuthority, client: CertificateAndKey) -> Iterator[httpx.Client]:
    with http_client(server, authority.context(client)) as opened:
        yield opened


@pytest.fixture
def grpc_channel(
    server: ServerProcess, authority: CertificateAuthority, client: CertificateAndKey
) -> Iterator[grpc.Channel]:
    with channel(server, authority, client) as opened:
        yield opened


def test_every_port_serves_clients_with_a_certificate(
    server: ServerProcess, authority: CertificateAuthority, client: CertificateAndKey, http: httpx.Client
) -> None:
    assert server.address.startswith("https://")
    assert http.post("/v2/models/detector/infer", json={"inputs": [image_input()]}).status_code == 200
    assert http.get(f"{server.tensorflow_serving_address}/v1/models/half_plus_two").status_code == 200
    assert "charioteer_certificate_expiry_timestamp_seconds" in http.get("/metrics").text
    for address in (server.grpc_address, server.tensorflow_grpc_address):
        with channel(server, authority, client, address) as grpc_channel:
            assert ready(grpc_channel) == b"\x08\x01"


def test_every_port_rejects_clients_without_a_certificate_or_tls(
    server: ServerProcess, authority: CertificateAuthority
) -> None:
    for address in (server.address, server.tensorflow_serving_address):
        with http_client(server, authority.context()) as http, pytest.raises(httpx.TransportError):
            http.get(f"{address}/health")
    for address in (server.grpc_address, server.tensorflow_grpc_address):
        with channel(server, authority, None, address) as grpc_channel, raises_status(grpc.StatusCode.UNAVAILABLE):
            ready(grpc_channel)
    with grpc.insecure_channel(server.grpc_address) as grpc_channel, raises_status(grpc.StatusCode.UNAVAILABLE):
        ready(grpc_channel)
    assert [line for line in server.log if not line.startswith("{")] == []


def test_renewed_certificate_is_used_on_every_port(
    server: ServerProcess,
    authority: CertificateAuthority,
    client: CertificateAndKey,
    http: httpx.Client,
    grpc_channel: grpc.Channel,
) -> None:
    def serials() -> set[str]:
        return {serial_of_port(port, authority.context(client)) for port in ports}

    ports = [server.address, f"https://{server.grpc_address}", server.tensorflow_serving_address]
    assert (http.get("/health").status_code, ready(grpc_channel)) == (200, b"\x08\x01")
    before = serials()
    authority.issue("server")
    wait_until(lambda: not before & serials())
    assert len(serials()) == 1
    assert (http.get("/health").status_code, ready(grpc_channel)) == (200, b"\x08\x01")


def test_silent_grpc_connection_is_closed(server: ServerProcess) -> None:
    host, _, port = server.grpc_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        while connection.recv(65536):
            pass


def test_grpc_metadata_over_the_limit_is_resource_exhausted(grpc_channel: grpc.Channel) -> None:
    assert ready(grpc_channel, metadata=[("x", "y" * 60_000)]) == b"\x08\x01"
    with raises_status(grpc.StatusCode.RESOURCE_EXHAUSTED):
        ready(grpc_channel, metadata=[("x", "y" * 66_000)])
    assert ready(grpc_channel) == b"\x08\x01"


def test_grpc_calls_over_the_stream_limit_of_a_connection_wait(
    server: ServerProcess, authority: CertificateAuthority, client: CertificateAndKey
) -> None:
    watch = "/grpc.health.v1.Health/Watch"
    with channel(server, authority, client) as grpc_channel:
        open_calls: list[Any] = [grpc_channel.unary_stream(watch)(b"") for _ in range(4)]
        for call in open_calls:
            assert next(iter(call))
        with raises_status(grpc.StatusCode.DEADLINE_EXCEEDED):
            grpc_channel.unary_unary(READY)(b"", timeout=1)
        with channel(server, authority, client) as other:
            assert ready(other) == b"\x08\x01"
        waiting = cast("Any", grpc_channel).unary_unary(READY).future(b"", timeout=20)
        open_calls[0].cancel()
        assert waiting.result() == b"\x08\x01"
        for call in open_calls:
            call.cancel()


def serial_of_port(address: str, context: ssl.SSLContext) -> str:
    """Return the serial number of the certificate that a port presents."""
    host, _, port = address.removeprefix("https://").rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=60) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as tls_connection,
    ):
        return peer_certificate_serial(tls_connection)


def test_container_healthcheck_works_over_tls(server: ServerProcess) -> None:
    port = server.address.rpartition(":")[2]
    variables = {"CHARIOTEER_HTTP_PORT": port, "CHARIOTEER_TLS_CERT": "c", "CHARIOTEER_TLS_CLIENT_CA": "c"}
    command = [sys.executable, ROOT / "deploy" / "healthcheck.py"]
    assert subprocess.run(command, env=variables, check=False).returncode == 0
    del variables["CHARIOTEER_TLS_CLIENT_CA"]
    assert subprocess.run(command, env=variables, check=False, stderr=subprocess.DEVNULL).returncode == 1
