"""Run commands of `charioteer` in this process, because a new one imports for a second before it starts."""

import contextlib
import io
import sys
import warnings
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from app.core.cli import main
from tests.support.servers.server_process import ROOT


def charioteer(*arguments: str | Path, cwd: Path = ROOT) -> CompletedProcess[str]:
    """Run a command in the folder `cwd`, and return its exit status and output as `subprocess.run` does."""
    command, status = ["charioteer", *map(str, arguments)], 0
    with (
        contextlib.redirect_stdout(io.StringIO()) as stdout,
        contextlib.redirect_stderr(io.StringIO()) as stderr,
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", command),
        warnings.catch_warnings(),
    ):
        # Cyclopts warns of a test that forgets the arguments; here they are in `sys.argv`.
        warnings.filterwarnings("ignore", "Cyclopts application invoked without tokens")
        try:
            main()
        except SystemExit as stop:
            # The interpreter prints what is no number, and exits with status 1.
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            if isinstance(stop.code, str):
                print(stop.code, file=stderr)
    return CompletedProcess(command, status, stdout.getvalue(), stderr.getvalue())


def output_of(*arguments: object, cwd: Path = ROOT, status: int = 0) -> str:
    """Run a command, check its exit status, and return its output and its messages."""
    done = charioteer(*map(str, arguments), cwd=cwd)
    output = done.stdout + done.stderr
    assert done.returncode == status, output
    return output
