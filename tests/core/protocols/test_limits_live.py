"""Test that a real server rejects bodies that would take gigabytes, and needs little memory for it."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

pytestmark = pytest.mark.slow

INFER = "/v2/models/m-detector/infer"
VALID_REQUEST = {
    "inputs": [{"name": "i", "shape": [1], "datatype": "BYTES", "data": [encode_base64(encode_image(rectangle()))]}]
}
MEGABYTES = 24


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with run_server("--model", str(ROOT / "fixtures/models/detector")) as server:
        yield server


def peak_memory(server: ServerProcess) -> int:
    """Return the peak memory of the server in MiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match
    return int(match[1]) // 1024


JSON_BOMBS: dict[str, Callable[[], bytes]] = {
    "numbers": lambda: b'{"inputs":[' + b"1," * (MEGABYTES * 500_000) + b"1]}",
    "members": lambda: b'{"inputs":{' + b'"a":1,' * (MEGABYTES * 160_000) + b'"b":1}}',
    "arrays": lambda: b'{"inputs":' + b"[" * (MEGABYTES * 1_000_000),
    "objects": lambda: b'{"inputs":[' + b"{}," * (MEGABYTES * 330_000) + b"{}]}",
}


@pytest.mark.parametrize(
    ("path", "bomb"),
    [*((INFER, bomb) for bomb in JSON_BOMBS.values()), ("/v1/models/detector:predict", JSON_BOMBS["numbers"])],
    ids=[*JSON_BOMBS, "numbers for KServe V1"],
)
def test_json_bomb_is_rejected_with_little_memory(server: ServerProcess, path: str, bomb: Callable[[], bytes]) -> None:
    body = bomb()
    with httpx.Client(base_url=server.address, timeout=60) as client:
        assert client.post(INFER, json=VALID_REQUEST).status_code == 200
        before = peak_memory(server)
        answer = client.post(path, content=body)
        assert answer.status_code in (400, 413)
        assert re.search("Expected (at most|JSON nested)", answer.json()["error"])
        # Allow for the received chunks, the joined body, the body without its strings, and working memory.
        assert peak_memory(server) - before < 5 * MEGABYTES
        assert client.post(INFER, json=VALID_REQUEST).status_code == 200


def test_compressed_bomb_is_decompressed_only_up_to_the_limit(server: ServerProcess) -> None:
    bomb = gzip.compress(bytes(300_000_000), 1)
    with httpx.Client(base_url=server.address, timeout=60) as client:
        before = peak_memory(server)
        answer = client.post(INFER, content=bomb, headers={"Content-Encoding": "gzip"})
        assert answer.status_code == 413
        assert "after decompression" in answer.json()["error"]
        assert peak_memory(server) - before < 200
        assert client.post(INFER, json=VALID_REQUEST).status_code == 200


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ("/inference.GRPCInferenceService/ModelInfer", b"\x2a\x00"),
        ("/inference.GRPCInferenceService/ModelInfer", b"\x22\x00"),
        ("/inference.GRPCInferenceService/RepositoryModelLoad", b"\x1a\x00"),
        ("/grps.protos.v1.GrpsService/Predict", b"\x1a\x00"),
    ],
)
def test_message_of_millions_of_empty_fields_is_rejected(server: ServerProcess, method: str, field: bytes) -> None:
    assert server.address
    with grpc.insecure_channel(server.grpc_address, options=[("grpc.max_send_message_length", -1)]) as untyped_channel:
        channel: Any = untyped_channel
        call = channel.unary_unary(method)
        before = peak_memory(server)
        try:
            message = call(field * (MEGABYTES * 500_000), timeout=60).decode(errors="replace")
        except grpc.RpcError as error:
            rpc_error: Any = error
            assert rpc_error.code() is grpc.StatusCode.INVALID_ARGUMENT
            message = rpc_error.details()
        assert "Expected at most" in message
        assert peak_memory(server) - before < 5 * MEGABYTES


def test_server_log_has_no_errors_after_the_rejections(server: ServerProcess) -> None:
    lines = [json.loads(line) for line in server.log if line.startswith("{")]
    assert not [line for line in lines if line.get("level") == "error"]
    assert not [line for line in server.log if "Traceback" in line]
