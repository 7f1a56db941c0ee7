"""A real server process, started as a user starts it."""

import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]

_ADDRESS = re.compile(r"Charioteer answers at (https?://\S+)")
_GRPC_ADDRESS = re.compile(r"^  gRPC +(\S+)$", re.MULTILINE)


class ServerProcess:
    """`charioteer serve` with `arguments`, on a free port unless they name one."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "app", "serve", "--log-format", "json", *arguments]
        if "--port" not in arguments:
            command += ["--port", "0"]
        for other in ("--grpc-port", "--tensorflow-serving-port"):
            if other not in arguments:
                command += [other, "0"]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment)
        self.log: list[str] = []
        self._announced = threading.Event()
        self._address = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def address(self) -> str:
        """Where it listens, once its models are loaded."""
        assert self._announced.wait(60), "the server said nothing"
        assert self._address, "".join(self.log)
        return self._address

    @property
    def grpc_address(self) -> str:
        """Where it listens for gRPC. To be asked for once something else has answered: the line comes second."""
        found = _GRPC_ADDRESS.search("".join(self.log))
        assert found, "".join(self.log)
        return found[1]

    def stop(self) -> int:
        """Ask it to end, and wait: its exit status."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for it to end by itself: its exit status."""
        status = self.process.wait(60)
        self._reader.join(60)
        return status

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if found := _ADDRESS.search(line):
                    self._address = found[1]
                    self._announced.set()
        self._announced.set()


@contextmanager
def serving(*arguments: str, environment: dict[str, str] | None = None) -> Generator[ServerProcess]:
    """A server that is killed at the end, whatever happened to it."""
    server = ServerProcess(*arguments, environment=environment)
    try:
        yield server
    finally:
        server.process.kill()
        server.wait()
