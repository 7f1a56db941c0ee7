"""Answers of the server over sockets are those of ``golden.json``."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import httpx
import pytest

from tests.support.servers.server_process import run_server
from tests.support.wire.golden import PORTS, SERVER_ARGUMENTS, ask, difference, golden_answers

GOLDEN = golden_answers()
CASES = [(port, name) for port, cases in PORTS.items() for name in cases]

Clients = Mapping[str, httpx.Client]


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    """Yield a client of each port of a server process."""
    with run_server(*SERVER_ARGUMENTS) as server, ExitStack() as stack:
        addresses = {"main": server.address, "tensorflow-serving": server.tensorflow_serving_address}
        yield {
            port: stack.enter_context(httpx.Client(base_url=address, timeout=120, trust_env=False))
            for port, address in addresses.items()
        }


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize(("port", "name"), CASES)
def test_answer_over_sockets_equals_the_golden_one(clients: Clients, port: str, name: str, encoding: str) -> None:
    golden = dict(GOLDEN[f"{port}: {name}"])
    gzip_headers = golden.pop("gzip_headers", golden["headers"])
    if encoding == "gzip":
        golden["headers"] = gzip_headers
    assert not difference(ask(clients[port], PORTS[port][name], encoding), golden)
