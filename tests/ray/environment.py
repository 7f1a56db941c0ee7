"""A virtual environment for Ray in ``.venv-clients``, with an editable installation of this repository; made once."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import FOLDER
from tests.support.server_process import ROOT

_SECONDS = 600


def python_with_ray() -> Path:
    """Return its interpreter; skip the test if Ray cannot be installed."""
    python, stamp = FOLDER / "ray" / "bin" / "python", FOLDER / "ray" / "installed.toml"
    requirements = (ROOT / "pyproject.toml").read_text()
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != requirements:
            if not python.is_file():
                subprocess.run([sys.executable, "-m", "venv", str(FOLDER / "ray")], check=True)
            _install(python)
            stamp.write_text(requirements)
    return python


def _install(python: Path) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    command = [str(python), "-m", "pip", "install", *options, "--editable", f"{ROOT}[ray]"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Ray was not installed within {_SECONDS} s")
    if completed.returncode != 0:
        reason = (completed.stderr or completed.stdout).strip().splitlines() or ["no reason given"]
        pytest.skip(f"Ray cannot be installed: {reason[-1]}")
