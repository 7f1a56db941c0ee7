"""Measure the cost of recording: the share of one core at a steady rate of inferences, and how long answers wait.

The recorder runs alone. The inferences are created in advance: a detector's answers with five objects, four entries of
metadata and a different photograph of 59 kB, whose digest is computed. The cost without a recorder is subtracted.

    python -m tests.benchmarks.recording [--rate 500] [--seconds 10] [--images]
"""

import argparse
import itertools
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry

from app.core.engine.request_context import RequestContext
from app.plugins.recording.service import open_recorder
from app.plugins.recording.settings import RecordingSettings
from tests.support.data.inference_events import detection_event
from tests.support.servers.postgres import is_postgres_installed, run_postgres

Record = Callable[[RequestContext], "Future[None] | None"]

_EVENTS = 200
_IMAGE = Path(__file__).parents[2] / "fixtures" / "images" / "scene.jpg"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=500, help="inferences a second")
    parser.add_argument("--seconds", type=float, default=10, help="how long each is measured")
    parser.add_argument("--images", action="store_true", help="keep the images too")
    options = parser.parse_args()
    events = [_event(index) for index in range(_EVENTS)]
    idle, _ = _measure(lambda _: None, events, options.rate, options.seconds)
    print(f"{options.rate} inferences/s for {options.seconds:g} s, images {'kept' if options.images else 'not kept'}")
    print(f"{'store':<12} {'mode':<12} {'of one core':>12} {'each':>9} {'wait p50':>10} {'p99':>10}")
    with tempfile.TemporaryDirectory(dir=".") as folder, ExitStack() as stack:
        stores = {"SQLite": lambda: str(Path(folder) / f"{time.monotonic_ns()}.db")}
        if is_postgres_installed():
            stores["PostgreSQL"] = stack.enter_context(run_postgres()).create_database
        for (name, address), mode in itertools.product(stores.items(), ("acknowledge", "best-effort")):
            images = Path(folder) / name / mode if options.images else None
            settings = RecordingSettings(record=address(), record_mode=mode, record_images=images)
            recorder = open_recorder(settings, CollectorRegistry())
            assert recorder is not None
            cpu_share, waits = _measure(recorder.record, events, options.rate, options.seconds)
            recorder.close(10)
            share = cpu_share - idle
            shown = [f"{1000 * seconds:7.1f} ms" for seconds in np.percentile(waits, (50, 99))] if waits else ["-", "-"]
            print(f"{name:<12} {mode:<12} {100 * share:>10.1f} % {1e6 * share / options.rate:>6.0f} us", end="")
            print("".join(f"{cell:>11}" for cell in shown))


def _event(index: int) -> RequestContext:
    metadata = [
        {"key": "camera", "type": "str", "value": f"camera-{index % 7}"},
        {"key": "altitude", "type": "int", "value": str(index)},
        {"key": "latitude", "type": "float", "value": str(index / 10)},
        {"key": "longitude", "type": "float", "value": str(index / 5)},
    ]
    return detection_event(image_bytes=_IMAGE.read_bytes() + os.urandom(16), metadata=metadata)


def _measure(
    record: Record, events: Sequence[RequestContext], rate: int, seconds: float
) -> tuple[float, Sequence[float]]:
    """Return the used share of one core, and the seconds that each inference waited to be recorded."""
    waits: list[float] = []
    futures: list[Future[None]] = []
    started, cpu_started = time.monotonic(), time.process_time()
    for index in range(int(rate * seconds)):
        time.sleep(max(0.0, started + index / rate - time.monotonic()))
        event = _with_new_id(events[index % len(events)])
        submitted = time.monotonic()
        if (recorded := record(event)) is not None:
            recorded.add_done_callback(lambda _, submitted=submitted: waits.append(time.monotonic() - submitted))
            futures.append(recorded)
    share = (time.process_time() - cpu_started) / (time.monotonic() - started)
    for recorded in futures:
        recorded.result(60)
    return share, waits


def _with_new_id(event: RequestContext) -> RequestContext:
    """Return the same inference with a new id and time."""
    return msgspec.structs.replace(event, id=uuid.uuid4().hex, timestamp=time.time_ns())


if __name__ == "__main__":
    main()
