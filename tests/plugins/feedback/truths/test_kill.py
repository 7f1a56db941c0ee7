"""Acknowledged truths survive kills of their writer."""

import subprocess
import sys

import pytest

from tests.plugins.recording.contents import contents
from tests.support.servers.server_process import ROOT


@pytest.mark.slow
def test_acknowledged_truths_survive_kills(url: str) -> None:
    kills = 10 if url.startswith("postgresql") else 20
    command = [sys.executable, "-m", "tests.plugins.feedback.truths.killed", url, str(kills)]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stderr
    acknowledged = completed.stdout.split()
    assert len(acknowledged) > 2 * kills
    rows = contents(url, "inference_truths")
    assert {*acknowledged} <= {row["comment"] for row in rows}
    revisions: dict[int, list[tuple[int, bool]]] = {}
    for row in rows:
        revisions.setdefault(row["number"], []).append((row["revision"], bool(row["current"])))
    for found in revisions.values():
        # Revisions are complete, and only the newest one is current.
        assert sorted(found) == [(number, number == len(found)) for number in range(1, len(found) + 1)]
