"""Run Debian's PostgreSQL for the tests, and delete its data afterwards."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.polling import wait_until
from tests.support.servers.ports import reserve_ports

# Test data does not have to survive a power loss.
_NO_DURABILITY = ("-c", "fsync=off", "-c", "full_page_writes=off")
_LOSSY = ("-c", "synchronous_commit=off")
"""If the server is killed, commits of the last second may be lost."""

_EMPTY = (
    # A test may have set this for the database.
    "SET default_transaction_read_only = off",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'reused' AND pid <> pg_backend_pid()",
    "DROP SCHEMA public CASCADE",
    "CREATE SCHEMA public",
    "ALTER DATABASE reused RESET ALL",
)


class PostgresServer:
    """A server on its own port.

    Args:
        bin_folder: where its programs are.
        folder: for its data; belongs to the user it runs as.
        lossy: whether a kill may lose commits, which takes less time.
    """

    def __init__(self, bin_folder: Path, folder: Path, *, lossy: bool = True) -> None:
        self._bin_folder = bin_folder
        self._options = (*_NO_DURABILITY, *(_LOSSY if lossy else ()))
        self._database_count = 0
        (self.port,) = reserve_ports(1)
        self._data = str(folder / "data")
        self._run("initdb", "--pgdata", self._data, "--username", "tester", "--auth", "trust", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        command = self._command("postgres", "-D", self._data, "-p", str(self.port), "-k", "", *self._options)
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(lambda: self._psql(["SELECT 1"], "postgres").returncode == 0)

    def kill(self) -> None:
        """End the server as a crash does; `start` recovers its data."""
        self._process.kill()
        self._process.wait(120)

    def prepare(self) -> None:
        """Create the database that tests reuse."""
        self._psql(["CREATE DATABASE reused"], "postgres").check_returncode()

    def close(self) -> None:
        """Stop the server without writing its data."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(120)

    def create_database(self) -> str:
        """Create a database, and return its address."""
        self._database_count += 1
        name = f"test{self._database_count}"
        self._psql([f"CREATE DATABASE {name}"], "postgres").check_returncode()
        return self.dsn(name)

    def empty_database(self) -> str:
        """Return the address of a database that is emptied for each test: another one would add 300 files."""
        self._psql(_EMPTY, "reused").check_returncode()
        return self.dsn("reused")

    def dsn(self, database: str, port: int | None = None) -> str:
        """Return the address of a database, on another port if a test has a proxy."""
        return f"postgresql://tester:secret@127.0.0.1:{port or self.port}/{database}"

    def _psql(self, statements: Sequence[str], database: str) -> "subprocess.CompletedProcess[bytes]":
        options = [option for statement in statements for option in ("-c", statement)]
        return self._run("psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "tester", *options, database)

    def _run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(self._command(program, *arguments), capture_output=True)

    def _command(self, program: str, *arguments: str) -> list[str]:
        """Return a command of another user than root, which PostgreSQL rejects.

        The argument `user` of `subprocess` would fork, and a thread of gRPC can abort a forked child.
        """
        change_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        return [*change_user, str(self._bin_folder / program), *arguments]


@contextmanager
def run_postgres(*, lossy: bool = True) -> Generator[PostgresServer]:
    """Run a server; `lossy` as in `PostgresServer`.

    Without PostgreSQL, skip the test, except in CI, where `make test-slow` installs it.
    """
    bin_folder = _find_bin_folder()
    if bin_folder is None:
        missing = "PostgreSQL is not installed: apt-get install postgresql"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    folder = Path(tempfile.mkdtemp(prefix="postgres"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        with closing(PostgresServer(bin_folder, folder, lossy=lossy)) as server:
            server.prepare()
            yield server
    finally:
        shutil.rmtree(folder)


def is_postgres_installed() -> bool:
    return _find_bin_folder() is not None


def _find_bin_folder() -> Path | None:
    """Return the server's programs, which Debian keeps off the path, in one folder for each version."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if folders:
        return folders[-1]
    program = shutil.which("postgres")
    return Path(program).parent if program else None
