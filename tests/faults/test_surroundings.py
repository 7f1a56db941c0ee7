"""What a server finds around it: logs that nobody reads, disks that are full, no files, no threads, no time."""

import json
import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from tests.faults.gated import BODY
from tests.support.chariot import image_input
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.polling import wait_until
from tests.support.ports import listening_port
from tests.support.server_process import ROOT, serving

pytestmark = pytest.mark.slow

DETECTOR = ROOT / "fixtures" / "models" / "detector"
JSON = {"content-type": "application/json"}
_ADDRESS = re.compile(rb"Charioteer answers at (http://\S+)")


def arguments(*more: str) -> list[str]:
    """How a server of the detector is started."""
    ports = ("--port", "0", "--no-grpc", "--no-tensorflow-serving")
    return [sys.executable, "-m", "app", "serve", "--model", str(DETECTOR), *ports, "--log-format", "json", *more]


@contextmanager
def started(stderr: int) -> Generator[subprocess.Popen[bytes]]:
    """A server that logs to a pipe which is this test's to read, or not."""
    server = subprocess.Popen(arguments(), cwd=ROOT, stderr=stderr)
    try:
        yield server
    finally:
        server.kill()
        server.wait(120)


def announced(log: IO[bytes]) -> str:
    for line in log:
        if found := _ADDRESS.search(line):
            return found[1].decode()
    raise AssertionError("the server said nothing")


def infer(client: httpx.Client, body: str = BODY) -> int:
    return client.post("/infer", content=body, headers=JSON).status_code


def test_whoever_reads_the_log_may_leave() -> None:
    with started(subprocess.PIPE) as server:
        assert server.stderr is not None
        address = announced(server.stderr)
        server.stderr.close()
        with httpx.Client(base_url=address, timeout=60) as client:
            assert [infer(client), infer(client, "{"), infer(client)] == [200, 400, 200]
        server.terminate()
        assert server.wait(120) == 0


def test_the_log_may_be_gone_before_the_server_has_said_where_it_is(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    server = subprocess.Popen(arguments(), cwd=ROOT, stderr=writing)
    os.close(writing)
    try:
        wait_until(lambda: listening_port(server.pid) is not None)
        with httpx.Client(base_url=f"http://127.0.0.1:{listening_port(server.pid)}", timeout=60) as client:
            wait_until(lambda: _ready(client))
            assert infer(client) == 200
        server.terminate()
        assert server.wait(120) == 0
    finally:
        server.kill()
        server.wait(120)


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_whoever_reads_the_log_may_stop_reading() -> None:
    """Far more than a pipe holds is said, warnings too; nobody waits for it, and neither does the end."""
    with started(subprocess.PIPE) as server:
        assert server.stderr is not None
        with httpx.Client(base_url=announced(server.stderr), timeout=60) as client:
            metadata = json.dumps([{"key": "k", "type": "str", "value": "v" * 10_000}])
            heavy = json.loads(BODY)
            heavy["inputs"][0]["parameters"]["metadata"] = metadata
            assert [infer(client, json.dumps(heavy)) for _ in range(20)] == [200] * 20
            assert [infer(client, "{") for _ in range(50)] == [400] * 50
            # Of each of these libjpeg itself says something there.
            assert [infer(client, json.dumps(_damaged())) for _ in range(20)] == [400] * 20
            assert infer(client) == 200
        server.terminate()
        assert server.wait(120) == 0
        server.stderr.close()


def _damaged() -> dict[str, Any]:
    picture = encoded(rectangle(), "JPEG")
    return {"inputs": [image_input(base64_text(picture[:200] + b"\xff\x00\x12" + picture[230:-100]))]}


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_standard_files_may_be_closed(closed: str) -> None:
    words = " ".join(arguments())
    server = subprocess.Popen(["/bin/sh", "-c", f"exec {words} {closed}"], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listening_port(server.pid) is not None)
        with httpx.Client(base_url=f"http://127.0.0.1:{listening_port(server.pid)}", timeout=60) as client:
            wait_until(lambda: _ready(client))
            assert [infer(client), infer(client, "{"), infer(client)] == [200, 400, 200]
            files = Path(f"/proc/{server.pid}/fd")
            assert not any("socket" in str((files / str(number)).readlink()) for number in range(3))
        server.terminate()
        assert server.wait(120) == 0
    finally:
        server.kill()
        server.wait(120)


def test_neither_a_home_nor_a_place_for_files_is_needed(tmp_path: Path) -> None:
    bare = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path / "nowhere")}
    with serving("--model", str(DETECTOR), environment=bare) as server:
        with httpx.Client(base_url=server.address, timeout=60) as client:
            assert infer(client) == 200
        assert server.stop() == 0


def test_a_process_that_was_stopped_for_a_while_goes_on() -> None:
    with serving("--model", str(DETECTOR)) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        assert infer(client) == 200
        server.process.send_signal(signal.SIGSTOP)
        asking = threading.Thread(target=lambda: results.append(infer(client)))
        results: list[int] = []
        wait_until(lambda: _is_stopped(server.process.pid))
        asking.start()
        assert not results
        server.process.send_signal(signal.SIGCONT)
        asking.join(60)
        assert results == [200]
        assert client.get("/ready").status_code == 200
        assert server.stop() == 0


def test_a_disk_that_is_full_refuses_every_answer_and_readiness_says_so(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    with (
        serving("--model", str(DETECTOR), "--record", str(store)) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        answered = 0
        while infer(client) == 200 and answered < 5:
            answered += 1
        size = max(each.stat().st_size for each in tmp_path.iterdir())
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        while (response := client.post("/infer", content=BODY, headers=JSON)).status_code == 200:
            answered += 1
        assert response.status_code == 503
        assert "could not be recorded" in response.json()["error"]
        ready = client.get("/ready")
        assert ready.status_code == 503, "what would be refused is not to be sent"
        assert "could not be recorded" in ready.json()["error"]
        assert client.get("/v2/health/ready").status_code == 503
        assert client.get("/health").status_code == 200
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_until(lambda: client.get("/ready").status_code == 200)
        assert infer(client) == 200
        lines = [json.loads(line) for line in server.log if '"inference"' in line]
        assert {line["outcome"] for line in lines} == {"ok", "model_not_ready"}, (
            "the log says what the senders were told"
        )
        assert server.stop() == 0
    with sqlite3.connect(store) as connection:
        kept = connection.execute("SELECT count(*) FROM inferences").fetchone()[0]
    connection.close()
    assert kept > answered, "what was acknowledged is there"


def test_without_more_files_those_who_are_connected_are_answered_and_others_once_there_are() -> None:
    with serving("--model", str(DETECTOR)) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        assert infer(client) == 200
        host, _, port = server.address.removeprefix("http://").partition(":")
        taken = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (taken + 4, taken + 4))
        crowd = [socket.create_connection((host, int(port))) for _ in range(8)]
        assert [infer(client) for _ in range(5)] == [200] * 5
        began = _processor_seconds(server.process.pid)
        assert client.get("/ready").status_code == 200
        for each in crowd:
            each.close()
        with httpx.Client(base_url=server.address, timeout=60) as other:
            assert infer(other) == 200
        assert _processor_seconds(server.process.pid) - began < 3, "waiting for files takes no processor"
        assert server.stop() == 0


def _is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
