"""Acknowledged inferences survive kills, once and complete."""

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.plugins.recording.images import image_path
from tests.plugins.recording.contents import contents
from tests.support.servers.server_process import ROOT

KILLS = 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_acknowledged_inferences_survive_kills_exactly_once(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    store = request.getfixturevalue("postgres_url") if kind == "postgresql" else str(tmp_path / "store.db")
    images = tmp_path / "images"
    command = [sys.executable, "-m", "tests.plugins.recording.killed", store, str(images), str(KILLS), kind]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stderr
    acknowledged = completed.stdout.split()
    assert len(acknowledged) > 3 * KILLS
    check(store, images, acknowledged)


def check(store: str, images: Path, acknowledged: Sequence[str]) -> None:
    """Assert that acknowledged inferences are stored once and that all stored inferences are complete."""
    rows = contents(store)
    ids = [row["id"].partition("-")[0] for row in rows]
    assert len(set(ids)) == len(ids)
    assert set(acknowledged) <= set(ids)
    numbers = {row["number"] for row in rows}
    for table in ("inference_metadata", "inference_labels"):
        assert {row["number"] for row in contents(store, table)} == numbers
    for row in rows:
        content = image_path(images, row["image_digest"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == row["image_digest"]
    if not store.startswith("postgresql"):
        with sqlite3.connect(store) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
