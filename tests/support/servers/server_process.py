"""Run a real server process, as a user starts it."""

import re
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]

_TIMEOUT_SECONDS = 180.0
"""By default: seconds until a silent process is taken to hang, even on a busy machine."""


def _announced(name: str, scheme: str = "") -> Any:
    """Return a property that waits until the log names an address: a URL, or host and port."""
    pattern = re.compile(rf'"{name}":"({scheme}[^"]+)"')
    return property(lambda server: server._wait_for_address(pattern))


class ServerProcess:
    """Run `charioteer serve` with `arguments` in the folder `cwd`; `program` is another command than that of the tests.

    Ports are free ones unless the arguments or the environment name them.

    Attributes:
        process: the running process.
        log: the lines of its standard error so far.
        address: the URL of its HTTP port, once its models are loaded.
        grpc_address: host and port for gRPC.
        tensorflow_serving_address: the URL of its port for TensorFlow Serving's protocol.
        tensorflow_grpc_address: host and port of the second gRPC port, for TensorFlow Serving's clients.
    """

    address: str = _announced("address", "https?://")
    grpc_address: str = _announced("gRPC")
    tensorflow_serving_address: str = _announced("TensorFlow Serving", "https?://")
    tensorflow_grpc_address: str = _announced("TensorFlow Serving gRPC")

    def __init__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        cwd: Path = ROOT,
        program: Sequence[str] = (sys.executable, "-m", "charioteer"),
        timeout: float = _TIMEOUT_SECONDS,
    ) -> None:
        command = [*program, "serve", "--log-format", "json", *arguments]
        if "--port" not in arguments and "UVICORN_PORT" not in (environment or {}):
            command += ["--port", "0"]
        for option in ("--grpc-port", "--tensorflow-serving-port", "--tensorflow-grpc-port"):
            if option not in arguments:
                command += [option, "0"]
        self.process = subprocess.Popen(
            command, cwd=cwd, stderr=subprocess.PIPE, text=True, errors="replace", env=environment
        )
        self.log: list[str] = []
        self._timeout = timeout
        self._addresses: dict[re.Pattern[str], str] = {}
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop(self) -> int:
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(self._timeout)
        self._reader.join(self._timeout)
        return status

    def _wait_for_address(self, pattern: re.Pattern[str]) -> str:
        """Wait for a line of the log, and return what its group matches."""
        if pattern in self._addresses:
            return self._addresses[pattern]
        with self._changed:
            while (match := pattern.search("".join(self.log))) is None and not self._ended:
                assert self._changed.wait(self._timeout), "".join(self.log)
        assert match, "".join(self.log)
        return self._addresses.setdefault(pattern, match[1])

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                with self._changed:
                    self.log.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@contextmanager
def run_server(*arguments: str, **options: Any) -> Generator[ServerProcess]:
    """Run a server with the options of `ServerProcess`, and kill it at the end in any case."""
    server = ServerProcess(*arguments, **options)
    try:
        yield server
    finally:
        server.process.kill()
        server.wait()
