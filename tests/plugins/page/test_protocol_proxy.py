"""The proxy from the web page to the other ports."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.data.chariot import IMAGE
from tests.support.servers.server_process import run_server

TENSORFLOW_SERVING = "/page/tensorflow-serving"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(small_models: Path) -> Iterator[httpx.Client]:
    with (
        run_server("--model-repository", str(small_models)) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        yield client


def ports(client: httpx.Client) -> dict[str, int]:
    return client.get("/page/models.json").json()["ports"]


def test_models_json_has_the_ports_that_are_open(client: httpx.Client) -> None:
    port_numbers = ports(client)
    response = httpx.get(f"http://127.0.0.1:{port_numbers['tensorflow-serving']}/v1/models/half_plus_two", timeout=60)
    assert response.json()["model_version_status"][0]["state"] == "AVAILABLE"
    assert len({*port_numbers.values(), client.base_url.port}) == 3


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/models/half_plus_two:predict", b'{"instances": [1, 2, 5]}'),
        ("POST", "/v1/models/half_plus_two:predict", b'{"instances": ['),
        ("POST", "/v1/models/detector:predict", json.dumps({"instances": [{"b64": IMAGE}]}).encode()),
        ("GET", "/v1/models/half_plus_tw%6F/metadata", b""),
        ("GET", "/v1/models/none?a=b", b""),
        ("GET", "/v2", b""),
        ("DELETE", "/v1/models/half_plus_two", b""),
        ("GET", "", b""),
    ],
)
def test_proxied_response_equals_that_of_the_tensorflow_serving_port(
    client: httpx.Client, method: str, path: str, body: bytes
) -> None:
    port = ports(client)["tensorflow-serving"]
    direct = httpx.request(method, f"http://127.0.0.1:{port}{path}", content=body, timeout=60)
    proxied = client.request(method, f"{TENSORFLOW_SERVING}{path}", content=body)
    assert (proxied.status_code, proxied.headers["content-type"]) == (
        direct.status_code,
        direct.headers["content-type"],
    )
    assert proxied.content == direct.content


def test_long_proxied_responses_are_gzipped_once(client: httpx.Client) -> None:
    body = {"instances": list(range(20_000))}
    response = client.post(f"{TENSORFLOW_SERVING}/v1/models/half_plus_two:predict", json=body)
    assert response.headers["content-encoding"] == "gzip"
    assert response.json()["predictions"][:3] == [2.0, 2.5, 3.0]
