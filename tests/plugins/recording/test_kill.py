"""Acknowledged inferences survive kills, once and complete.

Run as ``python -m tests.plugins.recording.test_kill STORE IMAGES SEED``, this module kills recorders while they record.
Each runs in a forked child, so that modules are imported only once. It prints the ids of the acknowledged events.
"""

import hashlib
import importlib
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from prometheus_client import CollectorRegistry

from app.plugins.recording.images import image_path
from app.plugins.recording.service import open_recorder
from app.plugins.recording.settings import RecordingSettings
from tests.plugins.recording.contents import contents, execute
from tests.support.data.inference_events import detection_event
from tests.support.killing import run_until_killed
from tests.support.servers.server_process import ROOT

KILLS = 5
CAMERA = [{"key": "camera", "type": "str", "value": "north"}]


@pytest.mark.slow
def test_acknowledged_inferences_survive_kills_exactly_once(url: str, tmp_path: Path) -> None:
    images = tmp_path / "images"
    command = [sys.executable, "-m", "tests.plugins.recording.test_kill", url, str(images), url[:6]]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert completed.returncode == 0, completed.stderr
    acknowledged = completed.stdout.split()
    assert len(acknowledged) > 3 * KILLS
    rows = contents(url)
    ids = [row["id"].partition("-")[0] for row in rows]
    assert len(set(ids)) == len(ids)
    assert set(acknowledged) <= set(ids)
    # All stored inferences are complete.
    assert {row["number"] for row in contents(url, "inference_labels")} == {row["number"] for row in rows}
    for row in rows:
        content = image_path(images, row["image_digest"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == row["image_digest"]
    if not url.startswith("postgresql"):
        assert [*execute(url, "PRAGMA integrity_check")] == [{"integrity_check": "ok"}]


def main() -> None:
    store, images, seed = sys.argv[1:]
    # Import what a recorder imports when it opens.
    for module in ("stores.sqlite_store", "stores.postgres_store", "recorder", "retention"):
        importlib.import_module(f"app.plugins.recording.{module}")
    rng = random.Random(seed)
    for _ in range(KILLS):
        sys.stdout.write(run_until_killed(partial(_record, store, Path(images)), rng.randint(0, 20)))


def _record(store: str, images: Path, acknowledgements: int) -> NoReturn:
    recorder = open_recorder(RecordingSettings(record=store, record_images=images), CollectorRegistry())
    assert recorder is not None

    def record(_: int) -> None:
        while True:
            event = detection_event(metadata=CAMERA, image_bytes=os.urandom(2000))
            recorded = recorder.record(event)
            assert recorded is not None
            recorded.result()
            os.write(acknowledgements, f"{event.id}\n".encode())

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(record, range(8)))
    os._exit(1)


if __name__ == "__main__":
    main()
