"""As many connections as there may be, to a real server that goes on answering."""

import re
import socket
import sys
from contextlib import ExitStack, closing
from http.client import HTTPSConnection
from pathlib import Path
from time import perf_counter

import httpx
import pytest

from app.server.connections import raise_file_limit
from tests.support.authority import Authority
from tests.support.chariot import image_input
from tests.support.server_process import serving

pytestmark = pytest.mark.slow

_MOST = 10_000
_OTHER_FILES = 1024
_OWN = 10
_KILOBYTES_EACH = 32
_OVER_TLS = 200
_KILOBYTES_OVER_TLS = 200
_MOST_KILOBYTES_OVER_TLS = 1500
_MUCH = 600_000
_REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def test_ten_thousand_idle_connections_cost_little_and_keep_nobody_waiting() -> None:
    """Fewer where fewer files may be open. The figures are printed: pytest -s shows them."""
    count = min(_MOST, raise_file_limit() - _OTHER_FILES) - _OWN
    with serving("--no-grpc", "--no-tensorflow-serving") as server:
        address = server.address
        port = int(address.rpartition(":")[2])
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as http, ExitStack() as kept:
            alone = _milliseconds(http)
            before = _resident(server.process.pid)
            connections = [
                kept.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=60)))
                for _ in range(count)
            ]
            for each in connections:
                each.sendall(_REQUEST)
            for each in connections:
                assert each.recv(65536).startswith(b"HTTP/1.1 200 ")
            among = _milliseconds(http)
            each_kilobytes = (_resident(server.process.pid) - before) / count
            metrics = http.get("/metrics").text
            assert re.search(rf"^charioteer_connections {count + 1}\.0$", metrics, re.MULTILINE)
        cost = f"{count:,} connections of {each_kilobytes:.1f} kB"
        sys.stdout.write(f"{cost}; an inference {alone:.1f} ms, among them {among:.1f} ms\n")
        assert each_kilobytes < _KILOBYTES_EACH
        assert among < 10 * alone + 30_000
        assert server.stop() == 0


def test_what_a_connection_over_tls_keeps_is_bounded(tmp_path: Path) -> None:
    """Its buffers grow to the largest piece that came at once, and stay. The figures are printed."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    options = ("--no-grpc", "--no-tensorflow-serving", "--tls-cert", str(cert), "--tls-key", str(key))
    context = authority.context()
    with serving(*options) as server, ExitStack() as kept:
        port = int(server.address.rpartition(":")[2])
        before = _resident(server.process.pid)
        connections = [
            kept.enter_context(closing(HTTPSConnection("127.0.0.1", port, timeout=60, context=context)))
            for _ in range(_OVER_TLS)
        ]
        each_kilobytes: list[float] = []
        for body in (b"", b" " * _MUCH):
            for each in connections:
                each.request("POST", "/absent", body)
                response = each.getresponse()
                response.read()
                assert response.status == 404
            each_kilobytes.append((_resident(server.process.pid) - before) / _OVER_TLS)
        idle, most = each_kilobytes
        sys.stdout.write(f"{_OVER_TLS} connections over TLS of {idle:.0f} kB, of {most:.0f} kB behind much\n")
        assert idle < _KILOBYTES_OVER_TLS
        assert most < _MOST_KILOBYTES_OVER_TLS


def _milliseconds(http: httpx.Client) -> float:
    """The middle one of some inferences."""
    found: list[float] = []
    for _ in range(21):
        began = perf_counter()
        assert http.post("/v2/models/detector/infer", json={"inputs": [image_input()]}).status_code == 200
        found.append((perf_counter() - began) * 1000)
    return sorted(found)[10]


def _resident(process: int) -> int:
    """Kilobytes."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1])
