"""Run the server under test as users start it, read its log, and measure its resource usage."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.soak.references import ROOT
from tests.soak.wire import Ports
from tests.support.servers.ports import reserve_ports

MAX_BYTES = 4 * 1024 * 1024
"""Maximum of a request body; low, so that oversized bodies are cheap to send."""
_TIMEOUT_SECONDS = 60
_PIPE, _SMALL_PIPE = 65536, 4096
"""Bytes (pipe(7))."""
_MAX_TRACEBACKS = 3
"""Tracebacks of a kind that are stored completely."""
_EXCEPTION_NAME = re.compile(r"^(\w[\w.]*)(?::|$)", re.MULTILINE)


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Resource usage of the server's process at one time.

    Attributes:
        life: the number of the start, from 1.
        at: seconds of a monotonic clock.
        requests: answered requests of the run so far.
        resident: bytes of memory.
        files: open file descriptors.
        threads: of the process.
    """

    life: int
    at: float
    requests: int
    resident: int
    files: int
    threads: int


class Server:
    """`charioteer serve` on ports that stay the same.

    Args:
        models: the repository.
        store: the file that inferences are recorded in.
        log: file for its standard error.
        extra_options: options in addition to those that a run needs.

    Attributes:
        ports: where it listens.
        starts: how often it was started.
        warnings: log lines of warning level and above, by event.
        exceptions: tracebacks by exception.
        tracebacks: some complete tracebacks.
    """

    def __init__(self, models: Path, store: Path, log: Path, extra_options: Sequence[str] = ()) -> None:
        self.ports = Ports(*reserve_ports(3))
        self.starts = 0
        self.warnings: Counter[str] = Counter()
        self.exceptions: Counter[str] = Counter()
        self.tracebacks: list[str] = []
        self._log = log
        self._reading = threading.Event()
        self._reading.set()
        port_options = ["--port", str(self.ports.http), "--grpc-port", str(self.ports.grpc)]
        port_options += ["--tensorflow-serving-port", str(self.ports.tensorflow_serving), "--log-format", "json"]
        port_options += ["--tensorflow-grpc-port", "0"]
        limit_options = ["--max-request-bytes", str(MAX_BYTES), "--drain-timeout", "20"]
        record_options = ["--record", str(store), "--repository-poll-seconds", "1"]
        self._command = [sys.executable, "-m", "app", "serve", "--model-repository", str(models)]
        self._command += [*port_options, *limit_options, *record_options, *extra_options]
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._running.pid

    @property
    def ended(self) -> bool:
        """Return whether the process has exited."""
        return self._running.poll() is not None

    def start(self) -> None:
        """Start the server, without waiting until it is ready."""
        self.starts += 1
        self._process = subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True)
        self._reader = threading.Thread(target=self._read, args=[self._process], daemon=True)
        self._reader.start()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._running.send_signal(number)

    def wait(self, seconds: float = _TIMEOUT_SECONDS) -> int:
        """Wait until it exits, and return the exit status."""
        status = self._running.wait(seconds)
        if self._reader is not None:
            self._reader.join(_TIMEOUT_SECONDS)
        return status

    def stop(self) -> int | None:
        """Stop the server, and return its exit status; None if it had to be killed."""
        if self._process is None:
            return 0
        self._reading.set()
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.wait()
            return None

    def stall_log(self) -> None:
        """Stop reading the server's log, like a stuck reader; the pipe holds only a few lines."""
        self._reading.clear()
        self._resize(_SMALL_PIPE)

    def read_log(self) -> None:
        """Continue to read the log."""
        self._reading.set()
        self._resize(_PIPE)

    def usage(self, requests: int) -> Usage | None:
        """Return the usage of its process; None if it has exited."""
        folder = Path(f"/proc/{self.pid}")
        try:
            fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
            return Usage(
                life=self.starts,
                at=time.monotonic(),
                requests=requests,
                resident=int(fields["VmRSS"].split()[0]) * 1024,
                files=sum(1 for _ in (folder / "fd").iterdir()),
                threads=int(fields["Threads"]),
            )
        except (OSError, KeyError):
            return None

    def _resize(self, size: int) -> None:
        lines = self._running.stderr
        assert lines is not None
        # This fails if the pipe holds more; then it is almost full already.
        with suppress(OSError):
            fcntl.fcntl(lines.fileno(), fcntl.F_SETPIPE_SZ, size)

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was not started"
        return self._process

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        # Unbuffered, because buffered lines would still be processed during a stall.
        with process.stderr as lines, self._log.open("ab") as log_file:
            partial = b""
            while self._reading.wait() and (data := os.read(lines.fileno(), 65536)):
                *complete_lines, partial = (partial + data).split(b"\n")
                for line in complete_lines:
                    self._note(line, log_file.write)
            log_file.write(partial)

    def _note(self, line: bytes, write: Callable[[bytes], object]) -> None:
        try:
            entry = msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError):
            entry = {}
        ordinary = entry.get("level") == "info"
        if not ordinary:
            write(line + b"\n")
        if entry.get("level") in ("warning", "error", "critical"):
            self.warnings[" ".join(str(entry[name]) for name in ("event", "outcome") if name in entry)] += 1
        text = str(entry.get("exception", "")) or (line.decode(errors="replace") if not entry else "")
        if "Traceback" in text or "exception" in entry:
            exception_names = _EXCEPTION_NAME.findall(text)
            kind = exception_names[-1] if exception_names else "?"
            self.exceptions[kind] += 1
            if self.exceptions[kind] <= _MAX_TRACEBACKS:
                self.tracebacks.append(text[-3000:])
