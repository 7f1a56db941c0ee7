"""An environment of its own for Ray, with this repository in it as it is edited; made once, in ``.venv-clients``."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import FOLDER
from tests.support.server_process import ROOT

_SECONDS = 600


def python_with_ray() -> Path:
    """Its interpreter; the test is skipped where Ray cannot be installed."""
    python, stamp = FOLDER / "ray" / "bin" / "python", FOLDER / "ray" / "installed.toml"
    wanted = (ROOT / "pyproject.toml").read_text()
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != wanted:
            if not python.is_file():
                subprocess.run([sys.executable, "-m", "venv", str(FOLDER / "ray")], check=True)
            _install(python)
            stamp.write_text(wanted)
    return python


def _install(python: Path) -> None:
    quietly = ["--quiet", "--disable-pip-version-check", "--no-input"]
    command = [str(python), "-m", "pip", "install", *quietly, "--editable", f"{ROOT}[ray]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Ray was not installed within {_SECONDS} s")
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        pytest.skip(f"Ray cannot be installed: {reason[-1]}")
