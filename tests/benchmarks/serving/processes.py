"""Servers under measurement: started as their users start them, with the CPU time and memory of all processes."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

__all__ = ("ROOT", "Running", "charioteer", "free_port", "running")

ROOT = Path(__file__).parents[3]
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE = 120


class Running:
    """A server that is up.

    Attributes:
        ready_seconds: from its start to the first answer of its readiness.
        ports: the ports where it listens, by name.
        lines: what it has written so far.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        ports: Mapping[str, int],
        ready_seconds: float,
        lines: Sequence[bytes] = (),
    ) -> None:
        self._process = process
        self.lines = lines
        self.ports = ports
        self.ready_seconds = ready_seconds

    def cpu_seconds(self) -> float:
        """User and system time of all its processes so far, those that ended included."""
        return sum(_cpu_of(pid) for pid in self._family())

    def memory(self) -> tuple[float, float]:
        """Resident and proportional set size of all its processes, in megabytes."""
        resident = proportional = 0
        for pid in self._family():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    resident += int(line.split()[1])
                elif line.startswith("Pss:"):
                    proportional += int(line.split()[1])
        return resident / 1000, proportional / 1000

    def _family(self) -> Sequence[int]:
        found, left = [], [self._process.pid]
        while left:
            pid = left.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                left += [int(child) for child in task.read_text().split()]
        return found


@contextmanager
def running(
    command: Sequence[str],
    ports: Mapping[str, int],
    health: str,
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> Iterator[Running]:
    """A server that is stopped at the end.

    Args:
        command: starts it.
        ports: where it listens.
        health: the address that answers 200 once it is ready.
        environment: beside that of this process.
        folder: where it is started.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    said: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: _read(process, said), daemon=True)
    reader.start()
    try:
        while not _answers(health):
            if process.poll() is not None or time.perf_counter() - started > _PATIENCE:
                reader.join(1)
                raise RuntimeError(f"{command[0]} did not start: {b''.join(said[-20:]).decode(errors='replace')}")
            time.sleep(0.01)
        yield Running(process, ports, time.perf_counter() - started, said)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


@contextmanager
def charioteer(*arguments: str) -> Iterator[Running]:
    """Our own server, given `arguments` of `charioteer serve`; its ports are `http`, `grpc`, `tensorflow_serving`."""
    ports = {name: free_port() for name in ("http", "grpc", "tensorflow_serving")}
    listening = ["--port", str(ports["http"]), "--grpc-port", str(ports["grpc"])]
    listening += ["--tensorflow-serving-port", str(ports["tensorflow_serving"]), "--log-format", "json"]
    command = [sys.executable, "-m", "app", "serve", *arguments, *listening]
    with running(command, ports, f"http://127.0.0.1:{ports['http']}/ready") as server:
        yield server


def _read(process: "subprocess.Popen[bytes]", lines: list[bytes]) -> None:
    # Line by line: what extends a list is seen only when it has ended.
    for line in process.stdout or ():
        lines.append(line)  # noqa: PERF402


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _cpu_of(pid: int) -> float:
    """Of a process, and of those of its children that it has waited for (proc_pid_stat(5), fields 14 to 17)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS
