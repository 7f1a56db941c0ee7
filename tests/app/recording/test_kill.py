"""Whatever was acknowledged is there after any kill, once and whole."""

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.recording.images import image_path
from tests.app.recording.contents import contents
from tests.support.server_process import ROOT

DRIVERS = 4
"""So many kill at the same time, each the recorders of a store of its own."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "drivers", "kills"), [("sqlite", DRIVERS, 25), ("postgresql", 1, 5)])
def test_nothing_acknowledged_is_lost_or_doubled(
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
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.app.recording.killed",
                store,
                str(folder / "images"),
                str(kills),
                folder.name,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for store, folder in zip(stores, folders, strict=True)
    ]
    said = [each.communicate(timeout=300) for each in running]
    for driver, (_, errors) in zip(running, said, strict=True):
        assert driver.returncode == 0, errors
    assert sum(len(acknowledged.split()) for acknowledged, _ in said) > 3 * drivers * kills
    for store, folder, (acknowledged, _) in zip(stores, folders, said, strict=True):
        check(store, folder / "images", acknowledged.split())


def check(store: str, images: Path, acknowledged: Sequence[str]) -> None:
    """See that what was acknowledged is there once, and that all that is there is whole."""
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
    if not store.startswith("postgresql"):
        with sqlite3.connect(store) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
