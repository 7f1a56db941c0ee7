"""Whatever was acknowledged is there after any kill, once and whole."""

import hashlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from app.recording.images import image_path
from tests.app.recording.contents import contents
from tests.server_process import ROOT

KILLS = 100


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", KILLS), ("postgresql", 5)])
def test_nothing_acknowledged_is_lost_or_doubled(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, kills: int
) -> None:
    store = str(tmp_path / "store.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    images = tmp_path / "images"
    command = [sys.executable, "-m", "tests.app.recording.killed", store, str(images), str(kills)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    acknowledged = done.stdout.split()
    assert len(acknowledged) > 3 * kills
    found = contents(store)
    ids = [each["id"].partition("-")[0] for each in found]
    assert len(set(ids)) == len(ids)
    assert set(acknowledged) <= set(ids)
    numbers = {each["number"] for each in found}
    for table in ("inference_metadata", "inference_labels"):
        assert {each["number"] for each in contents(store, table)} == numbers
    for each in found:
        kept = image_path(images, each["image_digest"]).read_bytes()
        assert hashlib.sha256(kept).hexdigest() == each["image_digest"]
    if kind == "sqlite":
        with sqlite3.connect(store) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
