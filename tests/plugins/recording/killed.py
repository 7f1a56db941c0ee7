"""Kill recorders while they record: ``python -m tests.plugins.recording.killed STORE IMAGES KILLS SEED``.

Each recorder runs in a forked child, so that modules are imported only once. Prints the ids of the events whose
recording was acknowledged, one on each line.
"""

import importlib
import os
import random
import sys
import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import NoReturn

from prometheus_client import CollectorRegistry

from app.plugins.recording.service import open_recorder
from app.plugins.recording.settings import RecordingSettings
from tests.support.data.inference_events import detection_event
from tests.support.killing import run_until_killed

_CAMERA = [{"key": "camera", "type": "str", "value": "north"}]


def main() -> None:
    store, images, kills, seed = sys.argv[1:]
    # Import what a recorder imports when it opens.
    for module in ("stores.sqlite_store", "stores.postgres_store", "recorder", "retention"):
        importlib.import_module(f"app.plugins.recording.{module}")
    rng = random.Random(seed)
    for _ in range(int(kills)):
        sys.stdout.write(run_until_killed(partial(_record, store, Path(images)), rng.randint(0, 20)))


def _record(store: str, images: Path, acknowledgements: int) -> NoReturn:
    recorder = open_recorder(RecordingSettings(record=store, record_images=images), CollectorRegistry())
    assert recorder is not None

    def record() -> None:
        while True:
            event = detection_event(metadata=_CAMERA, image_bytes=os.urandom(2000))
            recorded = recorder.record(event)
            assert recorded is not None

            def acknowledge(future: "Future[None]", event_id: str = event.id) -> None:
                future.result()
                os.write(acknowledgements, f"{event_id}\n".encode())

            recorded.add_done_callback(acknowledge)
            recorded.result()

    threads = [threading.Thread(target=record) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(1)


if __name__ == "__main__":
    main()
