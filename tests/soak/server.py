"""The server under test: started as a user starts it, and again; what it says, and what it takes of the machine."""

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

from tests.benchmarks.serving.processes import free_port
from tests.soak.references import ROOT
from tests.soak.wire import Ports

__all__ = ("MOST_BYTES", "Server", "Usage")

MOST_BYTES = 4 * 1024 * 1024
"""Of a request's body, so that one that is too large costs the run little."""
_PATIENCE = 60
_PIPE, _SMALL_PIPE = 65536, 4096
"""Bytes (pipe(7))."""
_SHOWN = 3
"""Tracebacks of a kind that are kept whole."""
_RAISED = re.compile(r"^(\w[\w.]*)(?::|$)", re.MULTILINE)


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the server's process has at a moment.

    Attributes:
        life: counts its starts, from 1.
        at: seconds of a monotonic clock.
        requests: that had been answered in the run.
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
        log: where its standard error is kept.
        more: options beside those that a run needs.

    Attributes:
        ports: where it listens.
        lives: how often it was started.
        said: log lines by their event, of warnings and worse.
        raised: tracebacks by what was raised.
        tracebacks: some of them, whole.
    """

    def __init__(self, models: Path, store: Path, log: Path, more: Sequence[str] = ()) -> None:
        self.ports = Ports(free_port(), free_port(), free_port())
        self.lives = 0
        self.said: Counter[str] = Counter()
        self.raised: Counter[str] = Counter()
        self.tracebacks: list[str] = []
        self._log = log
        self._reading = threading.Event()
        self._reading.set()
        listening = ["--port", str(self.ports.http), "--grpc-port", str(self.ports.grpc)]
        listening += ["--tensorflow-serving-port", str(self.ports.tensorflow_serving), "--log-format", "json"]
        limits = ["--max-request-bytes", str(MOST_BYTES), "--drain-timeout", "20"]
        kept = ["--record", str(store), "--repository-poll-seconds", "1"]
        self._command = [sys.executable, "-m", "app", "serve", "--model-repository", str(models)]
        self._command += [*listening, *limits, *kept, *more]
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._running.pid

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._running.poll() is not None

    def start(self) -> None:
        """Start it, without waiting for it."""
        self.lives += 1
        self._process = subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True)
        self._reader = threading.Thread(target=self._read, args=[self._process], daemon=True)
        self._reader.start()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._running.send_signal(number)

    def wait(self, seconds: float = _PATIENCE) -> int:
        """Wait for its end: the exit status."""
        status = self._running.wait(seconds)
        if self._reader is not None:
            self._reader.join(_PATIENCE)
        return status

    def stop(self) -> int | None:
        """Ask it to end, and see that it does: the exit status, None when it had to be killed."""
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
        """Read on."""
        self._reading.set()
        self._resize(_PIPE)

    def usage(self, requests: int) -> Usage | None:
        """What its process has; None while there is none."""
        place = Path(f"/proc/{self.pid}")
        try:
            fields = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
            return Usage(
                life=self.lives,
                at=time.monotonic(),
                requests=requests,
                resident=int(fields["VmRSS"].split()[0]) * 1024,
                files=sum(1 for _ in (place / "fd").iterdir()),
                threads=int(fields["Threads"]),
            )
        except (OSError, KeyError):
            return None

    def _resize(self, size: int) -> None:
        lines = self._running.stderr
        assert lines is not None
        # Refused while more than that is in it, in which case it is as good as full already.
        with suppress(OSError):
            fcntl.fcntl(lines.fileno(), fcntl.F_SETPIPE_SZ, size)

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was not started"
        return self._process

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        # Without a buffer: what was read ahead of a pause would go on being read in it.
        with process.stderr as lines, self._log.open("ab") as kept:
            held = b""
            while self._reading.wait() and (data := os.read(lines.fileno(), 65536)):
                *whole, held = (held + data).split(b"\n")
                for line in whole:
                    self._note(line, kept.write)
            kept.write(held)

    def _note(self, line: bytes, keep: Callable[[bytes], object]) -> None:
        try:
            entry = msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError):
            entry = {}
        ordinary = entry.get("level") == "info"
        if not ordinary:
            keep(line + b"\n")
        if entry.get("level") in ("warning", "error", "critical"):
            self.said[" ".join(str(entry[name]) for name in ("event", "outcome") if name in entry)] += 1
        text = str(entry.get("exception", "")) or (line.decode(errors="replace") if not entry else "")
        if "Traceback" in text or "exception" in entry:
            named = _RAISED.findall(text)
            kind = named[-1] if named else "?"
            self.raised[kind] += 1
            if self.raised[kind] <= _SHOWN:
                self.tracebacks.append(text[-3000:])
