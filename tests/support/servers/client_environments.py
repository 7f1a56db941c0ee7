"""Create environments for foreign clients: one for those that pip can install together, and one for each other.

What the environment of the tests already has is imported from there.
"""

import subprocess
import sys
from pathlib import Path

from tests.installed.environments import Environment, layered_environment
from tests.support.servers.server_process import ROOT

_REQUIREMENTS = ROOT / "tests" / "clients"


def python_with(client: str) -> Path:
    """Return the interpreter for ``<client>.txt``, or for `many.txt`; skip the test if nothing can be downloaded."""
    name = client if (_REQUIREMENTS / f"{client}.txt").is_file() else "many"
    texts = (_REQUIREMENTS / f"{name}.txt").read_text().split()
    return layered_environment(Environment(Path(sys.prefix)), f"client-{name}", *texts).python


def run_checks(client: str, module: str, *arguments: str) -> None:
    """Run ``tests.clients.<module>`` with a client's interpreter; every check in it must pass.

    Print a line for each check, which ``python -m tests.clients`` reads from the report of the test.
    """
    command = [str(python_with(client)), "-m", f"tests.clients.{module}", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    sys.stdout.write(process.stdout)
    assert process.returncode == 0, process.stdout + process.stderr
