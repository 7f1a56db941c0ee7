"""A server process with authentication on all ports, and one that rejects to start."""

import http.client
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from tests.support.polling import wait_until
from tests.support.servers.auth_apps import ADMIN_KEY, INFER_KEY, OWNER_KEY, READ_KEY, bearer_header, write_key_file
from tests.support.servers.grpc_server import raises_status
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

WRONG = "key-of-a-thief"
TENSOR = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [2.0]}]}
MODEL = "half_plus_two"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_key_file(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def server(keys: Path) -> Generator[ServerProcess]:
    arguments = ("--host", "0.0.0.0", "--page", "--api-keys", str(keys))
    with run_server("--model", str(ROOT / "fixtures/models" / MODEL), *arguments) as process:
        assert process.address
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Generator[httpx.Client]:
    port = urlsplit(server.address).port
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as opened:
        yield opened


def statuses(client: httpx.Client, method: str, path: str, **options: Any) -> list[int]:
    """Return the statuses without a key, with a wrong key, with a read key and with a full key."""
    headers_by_client = [{}, *map(bearer_header, (WRONG, READ_KEY, OWNER_KEY))]
    return [client.request(method, path, headers=headers, **options).status_code for headers in headers_by_client]


def test_every_http_port_requires_permission(client: httpx.Client, server: ServerProcess) -> None:
    infer_statuses = [401, 401, 403, 200]
    assert statuses(client, "POST", f"/v2/models/{MODEL}/infer", json=TENSOR) == infer_statuses
    assert statuses(client, "POST", f"/v1/models/{MODEL}:predict", json={"instances": [2.0]}) == infer_statuses
    serving_port = urlsplit(server.tensorflow_serving_address).port
    url = f"http://127.0.0.1:{serving_port}/v1/models/{MODEL}"
    assert statuses(client, "POST", f"{url}:predict", json={"instances": [2.0]}) == infer_statuses
    assert statuses(client, "GET", "/metrics") == [401, 401, 200, 200]
    assert statuses(client, "GET", "/health") == [200, 200, 200, 200]


def test_grpc_port_requires_permission(server: ServerProcess) -> None:
    address = server.grpc_address.replace("0.0.0.0", "127.0.0.1")
    with grpc.insecure_channel(address) as opened:
        channel: Any = opened
        call = channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelUnload")
        for key, code in ((None, "UNAUTHENTICATED"), (WRONG, "UNAUTHENTICATED"), (INFER_KEY, "PERMISSION_DENIED")):
            with raises_status(grpc.StatusCode[code]):
                call(b"", metadata=[("x-api-key", key)] if key else (), timeout=30)


@pytest.mark.parametrize(
    "target", ["//metrics", "/metrics//", "/./metrics", "/%6D%65trics", "/a/../metrics", "/metrics?a=b", "/metrics#a"]
)
def test_path_variants_do_not_bypass_authorization(server: ServerProcess, target: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.address).port or 0, timeout=30)
    connection.putrequest("GET", target, skip_host=False)
    connection.endheaders()
    assert connection.getresponse().status in (400, 401, 404)
    connection.close()


def test_keys_appear_in_no_log_metric_or_command_line(client: httpx.Client, server: ServerProcess) -> None:
    for key in (WRONG, INFER_KEY, READ_KEY, ADMIN_KEY, OWNER_KEY):
        client.post(f"/v2/models/{MODEL}/infer", json=TENSOR, headers=bearer_header(key))
        client.post("/grps/v1/health/online", headers={"X-API-Key": key})
        client.get(f"/metrics?api_key={key}", auth=("", key))
    metrics = client.get("/metrics", headers=bearer_header(READ_KEY)).text
    command = Path(f"/proc/{server.process.pid}/cmdline").read_text()
    # Info lines are delayed; this warning flushes them. The server writes its lines in another thread.
    client.get("/metrics", headers=bearer_header(WRONG))
    wait_until(lambda: '"client":"owner"' in "".join(server.log))
    log = "".join(server.log)
    assert '"client":"owner"' in log
    assert '"event":"audit"' in log
    assert '"event":"access refused"' in log
    for key in (WRONG, INFER_KEY, READ_KEY, ADMIN_KEY, OWNER_KEY):
        assert key not in log + metrics + command
