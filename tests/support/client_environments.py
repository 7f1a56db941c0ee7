"""Create a virtual environment for each foreign client, because their dependencies and gRPC stubs conflict.

Made on first use in ``.venv-clients``, and again when the requirements in ``tests/clients`` change.
"""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_process import ROOT

FOLDER = ROOT / ".venv-clients"
_REQUIREMENTS = ROOT / "tests" / "clients"
_TIMEOUT_SECONDS = 300


def python_with(client: str) -> Path:
    """Return the interpreter for ``<client>.txt``; skip the test if the environment cannot be created."""
    folder = FOLDER / client
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    requirements = (_REQUIREMENTS / f"{client}.txt").read_text()
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{client}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != requirements:
            _create(folder, python, client)
            stamp.write_text(requirements)
    return python


def run_checks(client: str, module: str, *arguments: str) -> None:
    """Run ``tests.clients.<module>`` with a client's interpreter; every check in it must pass."""
    command = [str(python_with(client)), "-m", f"tests.clients.{module}", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stdout + process.stderr


def _create(folder: Path, python: Path, client: str) -> None:
    requirements = _REQUIREMENTS / f"{client}.txt"
    quiet_options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", *quiet_options, "--requirement", str(requirements)],
    ):
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.skip(f"the environment of {client} was not made within {_TIMEOUT_SECONDS} s")
        if process.returncode != 0:
            reason = (process.stderr or process.stdout).strip().splitlines() or ["no reason given"]
            pytest.skip(f"the environment of {client} cannot be made: {reason[-1]}")
