"""Create an environment for each foreign client, because their dependencies and gRPC stubs conflict.

What the environment of the tests already has is imported from there.
"""

import subprocess
import sys
from pathlib import Path

from tests.installed.environments import Environment, layered_environment
from tests.support.server_process import ROOT

_REQUIREMENTS = ROOT / "tests" / "clients"


def python_with(client: str) -> Path:
    """Return the interpreter for ``<client>.txt``; skip the test if its packages cannot be downloaded."""
    texts = (_REQUIREMENTS / f"{client}.txt").read_text().split()
    return layered_environment(Environment(Path(sys.prefix)), f"client-{client}", *texts).python


def run_checks(client: str, module: str, *arguments: str) -> None:
    """Run ``tests.clients.<module>`` with a client's interpreter; every check in it must pass."""
    command = [str(python_with(client)), "-m", f"tests.clients.{module}", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stdout + process.stderr
