"""Debian's PostgreSQL, started for the tests and thrown away after them."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Nothing that a test writes need outlast a loss of power.
_FAST = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")


class PostgresServer:
    """A server that accepts connections on a port of its own, and may be stopped and started again.

    Args:
        programs: where its programs are.
        folder: for its data; belongs to the user it runs as.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._data = folder / "data"
        self._databases = 0
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--pgdata", str(self._data), "--username", "tester", "--auth", "trust", "--no-sync")

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), "-k", "", *_FAST]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL, user=_user(), group=_user())
        until = time.monotonic() + 30
        while self._ask("SELECT 1", "postgres").returncode:
            assert time.monotonic() < until, "PostgreSQL does not start"
            time.sleep(0.05)

    def stop(self) -> None:
        """Cut all connections, and stop it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def database(self) -> str:
        """The address of a new database."""
        self._databases += 1
        name = f"test{self._databases}"
        self._ask(f"CREATE DATABASE {name}", "postgres").check_returncode()
        return self.address(name)

    def address(self, database: str, port: int | None = None) -> str:
        """Where a database is, on another port if a test stands between."""
        return f"postgresql://tester:secret@127.0.0.1:{port or self.port}/{database}"

    def _ask(self, statement: str, database: str) -> "subprocess.CompletedProcess[bytes]":
        return self._run("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "tester", "-c", statement, database)

    def _run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [str(self._programs / program), *arguments], capture_output=True, user=_user(), group=_user()
        )


@contextmanager
def postgres_server() -> Generator[PostgresServer]:
    """A running server. Without PostgreSQL the test is skipped, but in CI, where `make test` has installed it."""
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
    """Whether there is a PostgreSQL to be started."""
    return _programs() is not None


def _programs() -> Path | None:
    """Debian keeps the server's programs off the path, a folder for each version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parent.name))
    if found:
        return found[-1]
    program = shutil.which("postgres")
    return Path(program).parent if program else None


def _user() -> str | None:
    """PostgreSQL refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else None
