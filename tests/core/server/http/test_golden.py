"""Answers of the server are those of ``golden.json``, over sockets and over the test client of the framework."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.assembly.models import find_models
from app.core.assembly.service import Service
from app.core.settings.server import ModelOptions
from tests.support.polling import wait_until
from tests.support.servers.server_process import ROOT, run_server
from tests.support.servers.settings import settings_of_all_ports
from tests.support.wire.golden import PORTS, SERVER_ARGUMENTS, ask, difference, golden_answers

GOLDEN = golden_answers()
CASES = [(port, name) for port, cases in PORTS.items() for name in cases]

Clients = Callable[[str], httpx.Client]


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Yield a client of each port of a server process."""
    with run_server(*SERVER_ARGUMENTS) as server, ExitStack() as stack:
        addresses: Mapping[str, str] = {"main": server.address, "tensorflow-serving": server.tensorflow_serving_address}
        opened = {
            port: stack.enter_context(httpx.Client(base_url=address, timeout=120, trust_env=False))
            for port, address in addresses.items()
        }
        yield opened.__getitem__


@pytest.fixture(scope="module")
def test_clients() -> Iterator[Clients]:
    """Yield a test client of each port of a service in this process."""
    settings = settings_of_all_ports(
        grpc=False, port=0, max_request_bytes=3_000_000, cors_origins="https://app.example", tensorflow_serving_cors="*"
    )
    options = ModelOptions(model_repository=Path(ROOT, "fixtures/models"))
    service = Service(settings, lambda: find_models(options))
    apps = {"main": service.app, "tensorflow-serving": cast("Litestar", service.listeners[1].app)}
    with TestClient(apps["main"], base_url="http://127.0.0.1:8080") as main:
        wait_until(lambda: main.get("/ready").status_code == 200)
        other = TestClient(apps["tensorflow-serving"], base_url="http://127.0.0.1:8501")
        with other:
            yield {"main": main, "tensorflow-serving": other}.__getitem__


def check(client: httpx.Client, port: str, name: str, encoding: str) -> None:
    golden = dict(GOLDEN[f"{port}: {name}"])
    gzip_headers = golden.pop("gzip_headers", golden["headers"])
    if encoding == "gzip":
        golden["headers"] = gzip_headers
    assert not difference(ask(client, PORTS[port][name], encoding), golden)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize(("port", "name"), CASES)
def test_answer_over_sockets_equals_the_golden_one(clients: Clients, port: str, name: str, encoding: str) -> None:
    check(clients(port), port, name, encoding)


@pytest.mark.parametrize(("port", "name"), CASES)
def test_answer_of_the_test_client_equals_the_golden_one(test_clients: Clients, port: str, name: str) -> None:
    check(test_clients(port), port, name, "identity")
