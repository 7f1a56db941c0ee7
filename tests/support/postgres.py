"""Run Debian's PostgreSQL for the tests, and delete its data afterwards."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.polling import wait_until
from tests.support.ports import fixed_ports

# Test data does not have to survive a power loss.
_FAST = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")


class PostgresServer:
    """A server on its own port, which tests can stop and start again.

    Args:
        programs: where its programs are.
        folder: for its data; belongs to the user it runs as.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._data = folder / "data"
        self._databases = 0
        (self.port,) = fixed_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--pgdata", str(self._data), "--username", "tester", "--auth", "trust", "--no-sync")

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), "-k", "", *_FAST]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, user=_user(), group=_user())
        wait_until(lambda: self._ask("SELECT 1", "postgres").returncode == 0)

    def stop(self) -> None:
        """Close all connections, and stop the server."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(120)
            self._process = None

    def database(self) -> str:
        """Create a database, and return its address."""
        self._databases += 1
        name = f"test{self._databases}"
        self._ask(f"CREATE DATABASE {name}", "postgres").check_returncode()
        return self.address(name)

    def address(self, database: str, port: int | None = None) -> str:
        """Return the address of a database, on another port if a test has a proxy."""
        return f"postgresql://tester:secret@127.0.0.1:{port or self.port}/{database}"

    def _ask(self, statement: str, database: str) -> "subprocess.CompletedProcess[bytes]":
        return self._run("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "tester", "-c", statement, database)

    def _run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [str(self._programs / program), *arguments], capture_output=True, user=_user(), group=_user()
        )


@contextmanager
def postgres_server() -> Generator[PostgresServer]:
    """Run a server. Without PostgreSQL, skip the test, except in CI, where `make test-slow` installs it."""
    programs = _programs()
    if programs is None:
        missing = "PostgreSQL is not installed: apt-get install postgresql"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    folder = Path(tempfile.mkdtemp(prefix="postgres"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        server = PostgresServer(programs, folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def installed() -> bool:
    """Return whether PostgreSQL is installed."""
    return _programs() is not None


def _programs() -> Path | None:
    """Return the server's programs, which Debian keeps off the path, in one folder for each version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if found:
        return found[-1]
    program = shutil.which("postgres")
    return Path(program).parent if program else None


def _user() -> str | None:
    """PostgreSQL refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else None
