"""Run a server with an unread log, a full disk, and no free file descriptors."""

import json
import os
import re
import resource
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from tests.benchmarks.serving.processes import cpu_of_family
from tests.faults.gated import BODY, outcomes
from tests.support.polling import wait_until
from tests.support.servers.ports import listening_port
from tests.support.servers.server_process import ROOT, run_server

pytestmark = pytest.mark.slow

DETECTOR = ROOT / "fixtures" / "models" / "detector"
JSON = {"content-type": "application/json"}
_ADDRESS = re.compile(rb'"address":"(http://[^"]+)"')


def command(*more: str) -> list[str]:
    """Return the command that serves the detector."""
    ports = ("--port", "0", "--no-grpc", "--no-tensorflow-serving")
    return [sys.executable, "-m", "app", "serve", "--model", str(DETECTOR), *ports, "--log-format", "json", *more]


@contextmanager
def run_server_with_log(stderr: int, arguments: Sequence[str] = ()) -> Generator[subprocess.Popen[bytes]]:
    """Run a server that writes its log to `stderr`."""
    server = subprocess.Popen(arguments or command(), cwd=ROOT, stderr=stderr)
    try:
        yield server
    finally:
        server.kill()
        server.wait(120)


@contextmanager
def client_of(server: subprocess.Popen[bytes]) -> Generator[httpx.Client]:
    """Yield a client of a server without a log, when the server is ready."""
    wait_until(lambda: listening_port(server.pid) is not None)
    with httpx.Client(base_url=f"http://127.0.0.1:{listening_port(server.pid)}", timeout=60) as client:
        wait_until(lambda: _ready(client))
        yield client


def stopped(server: subprocess.Popen[bytes]) -> int:
    """Stop a server, and return its exit status."""
    server.terminate()
    return server.wait(120)


def read_address(log: IO[bytes]) -> str:
    for line in log:
        if match := _ADDRESS.search(line):
            return match[1].decode()
    raise AssertionError("the server did not announce its address")


def infer(client: httpx.Client, body: str = BODY) -> int:
    return client.post("/infer", content=body, headers=JSON).status_code


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_server_answers_while_log_pipe_is_full_and_after_its_reader_has_closed_it() -> None:
    """Log more than a pipe holds; neither requests nor the stop may wait for a reader."""
    with run_server_with_log(subprocess.PIPE) as server:
        assert server.stderr is not None
        with httpx.Client(base_url=read_address(server.stderr), timeout=60) as client:
            metadata = json.dumps([{"key": "k", "type": "str", "value": "v" * 10_000}])
            heavy = json.loads(BODY)
            heavy["inputs"][0]["parameters"]["metadata"] = metadata
            assert [infer(client, json.dumps(heavy)) for _ in range(20)] == [200] * 20
            assert [infer(client, "{") for _ in range(50)] == [400] * 50
            assert infer(client) == 200
            server.stderr.close()
            assert [infer(client), infer(client, "{"), infer(client)] == [200, 400, 200]
        assert stopped(server) == 0


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_server_runs_with_closed_standard_streams(closed: str) -> None:
    shell = ["/bin/sh", "-c", f"exec {' '.join(command())} {closed}"]
    with run_server_with_log(subprocess.DEVNULL, shell) as server:
        with client_of(server) as client:
            assert [infer(client), infer(client, "{"), infer(client)] == [200, 400, 200]
            files = Path(f"/proc/{server.pid}/fd")
            assert not any("socket" in str((files / str(number)).readlink()) for number in range(3))
        assert stopped(server) == 0


def test_full_disk_rejects_requests_and_clears_readiness(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    with (
        run_server("--model", str(DETECTOR), "--record", str(store)) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        answered = 0
        while infer(client) == 200 and answered < 5:
            answered += 1
        size = max(file.stat().st_size for file in tmp_path.iterdir())
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        while (response := client.post("/infer", content=BODY, headers=JSON)).status_code == 200:
            answered += 1
        assert response.status_code == 503
        assert "could not be recorded" in response.json()["error"]
        ready = client.get("/ready")
        assert ready.status_code == 503, "requests would be rejected"
        assert "could not be recorded" in ready.json()["error"]
        assert client.get("/v2/health/ready").status_code == 503
        assert client.get("/health").status_code == 200
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_until(lambda: client.get("/ready").status_code == 200)
        assert infer(client) == 200
        assert {*outcomes(server.log)} == {"ok", "model_not_ready"}, "the log has the outcome that clients received"
        assert server.stop() == 0
    with sqlite3.connect(store) as connection:
        recorded = connection.execute("SELECT count(*) FROM recordings").fetchone()[0]
    connection.close()
    assert recorded > answered, "acknowledged inferences are stored"


def test_server_without_home_temporary_folder_and_file_descriptors_serves_open_connections(tmp_path: Path) -> None:
    bare = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path / "nowhere")}
    with (
        run_server("--model", str(DETECTOR), environment=bare) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        assert infer(client) == 200
        host, _, port = server.address.removeprefix("http://").partition(":")
        open_files = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (open_files + 4, open_files + 4))
        connections = [socket.create_connection((host, int(port))) for _ in range(8)]
        assert [infer(client) for _ in range(5)] == [200] * 5
        began = cpu_of_family(server.process.pid)
        assert client.get("/ready").status_code == 200
        for connection in connections:
            connection.close()
        with httpx.Client(base_url=server.address, timeout=60) as new_client:
            assert infer(new_client) == 200
        assert cpu_of_family(server.process.pid) - began < 3, "waiting for file descriptors uses no CPU"
        assert server.stop() == 0
