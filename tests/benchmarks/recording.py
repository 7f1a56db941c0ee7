"""What recording costs: the share of one core that it takes at a steady rate of inferences, and how long answers wait.

The recorder runs alone. The inferences are made beforehand: a detector's answers of five objects, each with four
entries of metadata and its own photograph of 59 kB, whose digest is computed. What offering them costs without
a recorder is taken off.

    python -m tests.benchmarks.recording [--rate 500] [--seconds 10] [--images]
"""

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry

from app.assembly.recording import open_recorder
from app.engine.events import InferenceEvent
from app.engine.ids import event_id
from app.settings.server import ServerSettings
from tests.support.postgres import installed, postgres_server
from tests.support.recordings import detected

Keep = Callable[[InferenceEvent], "Future[None] | None"]

_EVENTS = 200
_PICTURE = Path(__file__).parents[2] / "fixtures" / "images" / "scene.jpg"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=500, help="inferences a second")
    parser.add_argument("--seconds", type=float, default=10, help="how long each is measured")
    parser.add_argument("--images", action="store_true", help="keep the images too")
    options = parser.parse_args()
    events = [_event(place) for place in range(_EVENTS)]
    idle, _ = _measured(lambda _: None, events, options.rate, options.seconds)
    print(f"{options.rate} inferences/s for {options.seconds:g} s, images {'kept' if options.images else 'not kept'}")
    print(f"{'store':<12} {'mode':<12} {'of one core':>12} {'each':>9} {'wait p50':>10} {'p99':>10}")
    with tempfile.TemporaryDirectory(dir=".") as folder, ExitStack() as stack:
        stores = {"SQLite": lambda: str(Path(folder) / f"{time.monotonic_ns()}.db")}
        if installed():
            stores["PostgreSQL"] = stack.enter_context(postgres_server()).database
        for (name, address), mode in itertools.product(stores.items(), ("acknowledge", "best-effort")):
            images = Path(folder) / name / mode if options.images else None
            settings = ServerSettings(record=address(), record_mode=mode, record_images=images)
            recorder = open_recorder(settings, CollectorRegistry())
            assert recorder is not None
            busy, waits = _measured(recorder.keep, events, options.rate, options.seconds)
            recorder.close(10)
            share = busy - idle
            shown = [f"{1000 * seconds:7.1f} ms" for seconds in np.percentile(waits, (50, 99))] if waits else ["-", "-"]
            print(f"{name:<12} {mode:<12} {100 * share:>10.1f} % {1e6 * share / options.rate:>6.0f} us", end="")
            print("".join(f"{cell:>11}" for cell in shown))


def _event(place: int) -> InferenceEvent:
    metadata = [
        {"key": "camera", "type": "str", "value": f"camera-{place % 7}"},
        {"key": "altitude", "type": "int", "value": str(place)},
        {"key": "latitude", "type": "float", "value": str(place / 10)},
        {"key": "longitude", "type": "float", "value": str(place / 5)},
    ]
    return detected(picture=_PICTURE.read_bytes() + os.urandom(16), metadata=metadata)


def _measured(keep: Keep, events: Sequence[InferenceEvent], rate: int, seconds: float) -> tuple[float, Sequence[float]]:
    """The share of one core that this process takes, and how long each inference waited to be kept, in seconds."""
    waits: list[float] = []
    begun, used = time.monotonic(), time.process_time()
    for place in range(int(rate * seconds)):
        time.sleep(max(0.0, begun + place / rate - time.monotonic()))
        event = _again(events[place % len(events)])
        asked = time.monotonic()
        if (kept := keep(event)) is not None:
            kept.add_done_callback(lambda done, asked=asked: waits.append(time.monotonic() - asked) or done.result())
    return (time.process_time() - used) / (time.monotonic() - begun), waits


def _again(event: InferenceEvent) -> InferenceEvent:
    """The same inference under another id, at another time."""
    return msgspec.structs.replace(event, id=event_id(), started=time.time_ns())


if __name__ == "__main__":
    main()
