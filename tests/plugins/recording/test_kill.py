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

DRIVERS = 2
"""The number of processes that kill recorders at the same time, each with its own store."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "drivers", "kills"), [("sqlite", DRIVERS, 10), ("postgresql", 1, 5)])
def test_acknowledged_inferences_survive_kills_exactly_once(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, drivers: int, kills: int
) -> None:
    folders = [tmp_path / str(driver) for driver in range(drivers)]
    for folder in folders:
        folder.mkdir()
    stores = (
        [request.getfixturevalue("postgres_url")]
        if kind == "postgresql"
        else [str(folder / "store.db") for folder in folders]
    )
    command = [sys.executable, "-m", "tests.plugins.recording.killed"]
    processes = [
        subprocess.Popen(
            [*command, store, str(folder / "images"), str(kills), folder.name],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for store, folder in zip(stores, folders, strict=True)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=300) for process in processes]
    for driver, (_, errors) in zip(processes, outputs, strict=True):
        assert driver.returncode == 0, errors
    assert sum(len(acknowledged.split()) for acknowledged, _ in outputs) > 3 * drivers * kills
    for store, folder, (acknowledged, _) in zip(stores, folders, outputs, strict=True):
        check(store, folder / "images", acknowledged.split())


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
