"""Acknowledged truths survive kills of their server."""

import subprocess
import sys

import pytest

from tests.support.servers.server_process import ROOT

_KILLS = 3


@pytest.mark.slow
def test_acknowledged_truths_survive_kills(url: str) -> None:
    command = [sys.executable, "-m", "tests.plugins.feedback.truths.killed", url, str(_KILLS)]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stdout + completed.stderr
