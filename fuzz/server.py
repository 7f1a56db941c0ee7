"""The server that is fuzzed: a process of its own, started as a user starts it."""

import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fuzz.requests import Port

__all__ = ("ServerProcess", "faults_in", "serving")

_ROOT = Path(__file__).parents[1]
_ADDRESSES: Mapping[Port, str] = {
    "http": r"answers at http://([\d.]+):(\d+)",
    "grpc": r"^  gRPC +([\d.]+):(\d+)",
    "tensorflow-serving": r"^  TensorFlow Serving +http://([\d.]+):(\d+)",
}
_BANNER = re.compile(r"Charioteer answers at |  [A-Z_a-z ]+  +(http://)?[\d.]+:\d+|\s*$")
_DECODER = re.compile(
    r"libpng (warning|error): [^{]*|[A-Z][a-z]+ [^{]*(JPEG|marker|Adobe|JFIF|SOS|component|Huffman|data)[^{]*"
)
"""What libpng and libjpeg think of an image, on lines of their own."""
_PATIENCE = 120


class ServerProcess:
    """`charioteer serve` over the models in a folder.

    Args:
        models: the folder, as `write_models` makes it.
        log: where to write what the server says.
        arguments: more of them.
    """

    def __init__(self, models: Path, log: Path, arguments: Sequence[str] = ()) -> None:
        self.log = log
        command = [sys.executable, "-m", "app", "serve", "--model-repository", str(models), "--allow-code"]
        command += ["--log-format", "json", "--port", "0", "--grpc-port", "0", "--tensorflow-serving-port", "0"]
        command += ["--max-explanation-seconds", "0.2", *arguments]
        self.process = subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True, errors="replace")
        self.addresses: dict[Port, tuple[str, int]] = {}
        self._known = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._known.wait(_PATIENCE) or len(self.addresses) < len(_ADDRESSES):
            self.stop()
            raise RuntimeError(f"The server did not start; {log} tells why")

    @property
    def runs(self) -> bool:
        """Whether the process is still there."""
        return self.process.poll() is None

    @property
    def resident_bytes(self) -> int:
        """What it has in memory."""
        (pages,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(pages) * 1024

    @property
    def open_files(self) -> int:
        """File descriptors, connections among them."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self) -> int:
        """Ask it to end, and wait: its exit status."""
        self.process.terminate()
        try:
            status = self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._reader.join(_PATIENCE)
        return status

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines, self.log.open("w") as log:
            self._copy(lines, log)
        self._known.set()

    def _copy(self, lines: TextIO, log: TextIO) -> None:
        for line in lines:
            log.write(line)
            if self._known.is_set():
                continue
            for port, pattern in _ADDRESSES.items():
                if found := re.search(pattern, line):
                    self.addresses[port] = (found[1], int(found[2]))
            if len(self.addresses) == len(_ADDRESSES):
                self._known.set()


@contextmanager
def serving(models: Path, log: Path, arguments: Sequence[str] = ()) -> Generator[ServerProcess]:
    """A server that is ended at the end, whatever happened to it."""
    server = ServerProcess(models, log, arguments)
    try:
        yield server
    finally:
        if server.runs:
            server.process.kill()
            server.process.wait()


def faults_in(log: Path) -> Counter[str]:
    """What a log has that no request may cause: errors, tracebacks, and lines that are no records."""
    found: Counter[str] = Counter()
    for line in log.read_text(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            if not _BANNER.match(line) and not _DECODER.fullmatch(line):
                found[f"no record: {line[:100]}"] += 1
            continue
        if record.get("level") not in ("debug", "info", "warning") or "exception" in record:
            last = str(record.get("exception", "")).strip().splitlines()[-1:]
            found[f"{record.get('level')}: {record.get('event')} {' '.join(last)}"[:200]] += 1
    return found
