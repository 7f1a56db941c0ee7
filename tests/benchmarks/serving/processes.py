"""Run servers as users start them, and measure CPU time and memory of all their processes."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.support.servers.ports import reserve_ports

ROOT = Path(__file__).parents[3]
_TICKS = os.sysconf("SC_CLK_TCK")
_TIMEOUT_SECONDS = 180
_INSTRUCTIONS = ("amx_bf16", "amx_int8", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx512f", "avx2")


class RunningServer:
    """A running server, and the seconds from its start to the first answer of its readiness."""

    def __init__(self, process: "subprocess.Popen[bytes]", ports: Mapping[str, int], ready_seconds: float) -> None:
        self._process = process
        self.ports = ports
        self.ready_seconds = ready_seconds

    def cpu_seconds(self) -> float:
        """Return user and system time of all its processes, including exited ones."""
        return cpu_of_family(self._process.pid)

    def memory(self) -> tuple[float, float]:
        """Return resident and proportional set size of all its processes, in megabytes."""
        return memory_of(family_of(self._process.pid))


@contextmanager
def run_server(
    command: Sequence[str],
    ports: Mapping[str, int],
    health: str,
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> Iterator[RunningServer]:
    """Run a server until the block ends; the URL `health` returns 200 once it is ready."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        # Users run installed packages, which have bytecode.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    lines: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        while not _answers(health):
            if process.poll() is not None or time.perf_counter() - started > _TIMEOUT_SECONDS:
                reader.join(1)
                raise RuntimeError(f"{command[0]} did not start: {b''.join(lines[-20:]).decode(errors='replace')}")
            time.sleep(0.01)
        yield RunningServer(process, ports, time.perf_counter() - started)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        # Some servers leave processes behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(1)


@contextmanager
def charioteer(*arguments: str, folder: Path = ROOT) -> Iterator[RunningServer]:
    """Run `charioteer serve` of the checkout `folder`; its ports are `http`, `grpc` and `tensorflow_serving`."""
    ports = dict(zip(("http", "grpc", "tensorflow_serving"), reserve_ports(3), strict=True))
    listening = ["--port", str(ports["http"]), "--grpc-port", str(ports["grpc"]), "--tensorflow-grpc-port", "0"]
    listening += ["--tensorflow-serving-port", str(ports["tensorflow_serving"]), "--log-format", "json"]
    command = [sys.executable, "-m", "app", "serve", *arguments, *listening]
    with run_server(command, ports, f"http://127.0.0.1:{ports['http']}/ready", folder=folder) as server:
        yield server


def _read(output: IO[bytes], lines: list[bytes]) -> None:
    with output:
        # Append each line, because `extend` shows nothing until it returns.
        for line in output:
            lines.append(line)  # noqa: PERF402


def _answers(address: str) -> bool:
    # The process that sends requests imports this module too, and starts faster without a client.
    import httpx

    try:
        return httpx.get(address, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def cpu_of_family(root: int) -> float:
    """Return user and system time of a process and its descendants, including exited ones, in seconds."""
    return sum(map(_cpu_of, family_of(root)))


def memory_of(pids: Iterable[int]) -> tuple[float, float]:
    """Return resident and proportional set size of processes, in megabytes; 0 for those that have exited."""
    texts: list[str] = []
    for pid in pids:
        with suppress(OSError):
            texts.append(Path(f"/proc/{pid}/smaps_rollup").read_text())
    resident, proportional = (
        sum(int(kilobytes) for text in texts for kilobytes in re.findall(rf"^{name}: +(\d+) kB", text, re.MULTILINE))
        for name in ("Rss", "Pss")
    )
    return resident / 1000, proportional / 1000


def family_of(root: int) -> Sequence[int]:
    """Return the ids of a process and its descendants."""
    family, pending = [], [root]
    while pending:
        pid = pending.pop()
        family.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            # A thread may end while it is read.
            with suppress(OSError):
                pending += [int(child) for child in task.read_text().split()]
    return family


def _cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process (its CPU clock, in nanoseconds) and of its reaped children (in ticks)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # Linux's clock_getcpuclockid(3), which Python lacks.
        own = time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0
    return own + sum(map(int, fields[13:15])) / _TICKS


def processor() -> str:
    """Return the name of the processor, and which instructions for inference it has."""
    lines = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in lines.items()}
    flags = {*fields.get("flags", fields.get("Features", "")).split()}
    present, missing = (", ".join(n for n in _INSTRUCTIONS if (n in flags) is has) for has in (True, False))
    return f"{fields.get('model name', 'unknown')} with {present}{f'; without {missing}' if missing else ''}"
