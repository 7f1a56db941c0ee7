"""The maximum number of connections to a server process."""

import re
import socket
import sys
from contextlib import ExitStack, closing
from http.client import HTTPSConnection
from pathlib import Path
from time import perf_counter

import httpx
import pytest

from app.core.engine.models.memory import resident_bytes
from app.core.server.listen import raise_file_limit
from tests.support.data.chariot import image_input
from tests.support.servers.certificate_authority import CertificateAuthority
from tests.support.servers.server_process import ROOT, run_server

pytestmark = pytest.mark.slow

_MODEL = ("--model", str(ROOT / "fixtures/models/detector"))
_TLS_CONNECTIONS = 200
_REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def test_ten_thousand_idle_connections_use_little_memory_and_time() -> None:
    """Open fewer if the file limit is lower. `pytest -s` shows the measured figures."""
    count = min(10_000, raise_file_limit() - 1024) - 10
    with run_server(*_MODEL, "--no-grpc", "--no-tensorflow-serving") as server:
        address = server.address
        port = int(address.rpartition(":")[2])
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as http, ExitStack() as stack:
            before_connections = _median_milliseconds(http)
            before = resident_bytes(server.process.pid)
            connections = [
                stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=60)))
                for _ in range(count)
            ]
            for connection in connections:
                connection.sendall(_REQUEST)
            for connection in connections:
                assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
            with_connections = _median_milliseconds(http)
            connection_kilobytes = (resident_bytes(server.process.pid) - before) / count / 1024
            metrics = http.get("/metrics").text
            assert re.search(rf"^charioteer_connections {count + 1}\.0$", metrics, re.MULTILINE)
        cost = f"{count:,} connections of {connection_kilobytes:.1f} kB"
        sys.stdout.write(f"{cost}; an inference {before_connections:.1f} ms, among them {with_connections:.1f} ms\n")
        assert connection_kilobytes < 32
        assert with_connections < 10 * before_connections + 30_000
        assert server.stop() == 0


def test_memory_of_a_tls_connection_is_bounded(tmp_path: Path) -> None:
    """Measure the buffers, which keep the size of the largest chunk. `pytest -s` shows the figures."""
    authority = CertificateAuthority(tmp_path)
    cert, key = authority.issue("server")
    options = (*_MODEL, "--no-grpc", "--no-tensorflow-serving", "--tls-cert", str(cert), "--tls-key", str(key))
    context = authority.context()
    with run_server(*options) as server, ExitStack() as stack:
        port = int(server.address.rpartition(":")[2])
        before = resident_bytes(server.process.pid)
        connections = [
            stack.enter_context(closing(HTTPSConnection("127.0.0.1", port, timeout=60, context=context)))
            for _ in range(_TLS_CONNECTIONS)
        ]
        connection_kilobytes: list[float] = []
        for body in (b"", b" " * 600_000):
            for connection in connections:
                connection.request("POST", "/absent", body)
                response = connection.getresponse()
                response.read()
                assert response.status == 404
            connection_kilobytes.append((resident_bytes(server.process.pid) - before) / _TLS_CONNECTIONS / 1024)
        idle, after_large_body = connection_kilobytes
        sys.stdout.write(
            f"{_TLS_CONNECTIONS} connections over TLS of {idle:.0f} kB, of {after_large_body:.0f} kB behind much\n"
        )
        assert idle < 200
        assert after_large_body < 1500


def _median_milliseconds(http: httpx.Client) -> float:
    """Return the median duration of 21 inferences."""
    durations: list[float] = []
    for _ in range(21):
        began = perf_counter()
        assert http.post("/v2/models/detector/infer", json={"inputs": [image_input()]}).status_code == 200
        durations.append((perf_counter() - began) * 1000)
    return sorted(durations)[10]
