"""Bodies that would take gigabytes, sent to a real server: it refuses them, stays small, and goes on."""

import gzip
import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.server_process import ServerProcess, serving

pytestmark = pytest.mark.slow

INFER = "/v2/models/m-detector/infer"
GOOD = {"inputs": [{"name": "i", "shape": [1], "datatype": "BYTES", "data": [base64_text(encoded(rectangle()))]}]}
MEGABYTES = 24


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as server:
        yield server


def peak(server: ServerProcess) -> int:
    """The most memory that the server ever had, in MiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) // 1024


JSON_BOMBS: dict[str, Callable[[], bytes]] = {
    "numbers": lambda: b'{"inputs":[' + b"1," * (MEGABYTES * 500_000) + b"1]}",
    "members": lambda: b'{"inputs":{' + b'"a":1,' * (MEGABYTES * 160_000) + b'"b":1}}',
    "arrays": lambda: b'{"inputs":' + b"[" * (MEGABYTES * 1_000_000),
    "objects": lambda: b'{"inputs":[' + b"{}," * (MEGABYTES * 330_000) + b"{}]}",
}


@pytest.mark.parametrize("bomb", JSON_BOMBS.values(), ids=JSON_BOMBS)
@pytest.mark.parametrize("path", [INFER, "/v2/models/detector/infer", "/v1/models/detector:predict"])
def test_json_that_would_fill_the_memory_is_refused(
    server: ServerProcess, path: str, bomb: Callable[[], bytes]
) -> None:
    body = bomb()
    with httpx.Client(base_url=server.address, timeout=60) as client:
        assert client.post(INFER, json=GOOD).status_code == 200
        before = peak(server)
        answer = client.post(path, content=body)
        assert answer.status_code in (400, 413)
        assert re.search("Expected (at most|JSON nested)", answer.json()["error"])
        # The body once as it comes and once whole, what is left of it when texts are passed over, and room to work in.
        assert peak(server) - before < 5 * MEGABYTES
        assert client.post(INFER, json=GOOD).status_code == 200


def test_a_compressed_body_is_unfolded_no_further_than_it_may_be(server: ServerProcess) -> None:
    bomb = gzip.compress(bytes(300_000_000), 1)
    with httpx.Client(base_url=server.address, timeout=60) as client:
        before = peak(server)
        answer = client.post(INFER, content=bomb, headers={"Content-Encoding": "gzip"})
        assert answer.status_code == 413
        assert "after decompression" in answer.json()["error"]
        assert peak(server) - before < 200
        assert client.post(INFER, json=GOOD).status_code == 200


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ("/inference.GRPCInferenceService/ModelInfer", b"\x2a\x00"),
        ("/inference.GRPCInferenceService/ModelInfer", b"\x22\x00"),
        ("/inference.GRPCInferenceService/RepositoryModelLoad", b"\x1a\x00"),
        ("/grps.protos.v1.GrpsService/Predict", b"\x1a\x00"),
    ],
)
def test_a_message_of_nothing_but_empty_fields_is_refused(server: ServerProcess, method: str, field: bytes) -> None:
    assert server.address
    with grpc.insecure_channel(server.grpc_address, options=[("grpc.max_send_message_length", -1)]) as opened:
        channel: Any = opened
        call = channel.unary_unary(method)
        before = peak(server)
        try:
            said = call(field * (MEGABYTES * 500_000), timeout=60).decode(errors="replace")
        except grpc.RpcError as error:
            told: Any = error
            assert told.code() is grpc.StatusCode.INVALID_ARGUMENT
            said = told.details()
        assert "Expected at most" in said
        assert peak(server) - before < 5 * MEGABYTES


@pytest.mark.parametrize("head", ["Content-Length: 10000000000", "Transfer-Encoding: chunked"])
def test_a_body_that_is_too_large_is_refused_while_it_comes(server: ServerProcess, head: str) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode())
        if "chunked" in head:
            piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
            for _ in range(65):
                connection.sendall(piece)
        answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 413 ")
    assert httpx.post(server.address + INFER, json=GOOD, timeout=60).status_code == 200


def test_nothing_of_it_was_a_fault_of_the_server(server: ServerProcess) -> None:
    lines = [json.loads(line) for line in server.log if line.startswith("{")]
    assert not [line for line in lines if line.get("level") == "error"]
    assert not [line for line in server.log if "Traceback" in line]
