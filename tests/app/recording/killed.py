"""Recorders that are killed while they record: ``python -m tests.app.recording.killed STORE IMAGES KILLS SEED``.

Each is a child of this process, which starts it by forking, so that nothing is imported a hundred times. Prints the ids
of the events whose keeping was acknowledged, a line each.
"""

import importlib
import os
import random
import signal
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import NoReturn

from prometheus_client import CollectorRegistry

from app.assembly.recording import open_recorder
from app.settings.server import ServerSettings
from tests.support.recordings import detected

_CAMERA = [{"key": "camera", "type": "str", "value": "north"}]


def main() -> None:
    store, images, kills, seed = sys.argv[1:]
    # What a recorder imports when it is opened.
    for module in ("sqlite_store", "postgres_store", "recorder", "retention"):
        importlib.import_module(f"app.recording.{module}")
    chance = random.Random(seed)
    for _ in range(int(kills)):
        sys.stdout.write(_acknowledged_until_killed(store, Path(images), chance.randint(0, 20)))


def _acknowledged_until_killed(store: str, images: Path, enough: int) -> str:
    """What a recorder acknowledges before it is killed, soon after it has acknowledged `enough`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _record(store, images, writing)
    os.close(writing)
    told = b""
    while told.count(b"\n") < enough:
        more = os.read(reading, 4096)
        assert more, "the recorder ended by itself"
        told += more
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 65536):
        told += more
    os.close(reading)
    return told.decode()


def _record(store: str, images: Path, acknowledgements: int) -> NoReturn:
    recorder = open_recorder(ServerSettings(record=store, record_images=images), CollectorRegistry())
    assert recorder is not None

    def keep() -> None:
        while True:
            event = detected(metadata=_CAMERA, picture=os.urandom(2000))
            kept = recorder.keep(event)
            assert kept is not None

            def tell(done: "Future[None]", event_id: str = event.id) -> None:
                done.result()
                os.write(acknowledgements, f"{event_id}\n".encode())

            kept.add_done_callback(tell)
            kept.result()

    threads = [threading.Thread(target=keep) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(1)


if __name__ == "__main__":
    main()
