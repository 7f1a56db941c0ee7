"""Measure queries with two filters over a million recorded inferences in SQLite: milliseconds for a page of 50.

Usage: ``python -m tests.benchmarks.recorded_query``.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from app.plugins.recording.inference import RecordedImage
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.rows import Rows, to_rows
from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import parse_dsn
from metadata.request import MetadataEntry
from tests.support.data.recorded_rows import recorded_inference

TARGET = 200
BATCH = 2000
ROUNDS = 5
STARTED = 1_767_225_600_000_000
"""2026-01-01, in microseconds; there is one inference a second from then on."""
CAMERAS = ("north", "south", "east", "west", "gate", "roof", "yard", "dock")
LABELS = ("car", "person", "truck", "dog", "bicycle", "boat", "bus", "plane")


def main() -> None:
    """Create the store, run the queries, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inferences", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, started = Path(folder) / "recorded.db", time.perf_counter()
        make_store(file, options.inferences)
        print(f"made in {time.perf_counter() - started:.0f} s")
        print(f"{options.inferences:,} inferences, {file.stat().st_size / 1e6:,.0f} MB; a page of 50, newest first")
        print(f"{'milliseconds':>12} {'slowest':>8} {'of CPU':>7} {'found':>6}  two filters")
        slow = 0
        for name, query in queries(options.inferences).items():
            elapsed: list[float] = []
            cpu_times: list[float] = []
            found = 0
            for _ in range(ROUNDS):
                # A new reader for each query: only the operating system caches the file.
                reader = RecordingReader(parse_dsn(str(file)))
                started, cpu_started = time.perf_counter(), time.process_time()
                found = len(reader.page(query, 50).inferences)
                elapsed.append((time.perf_counter() - started) * 1000)
                cpu_times.append((time.process_time() - cpu_started) * 1000)
            slow += statistics.median(elapsed) > TARGET
            median, cpu = statistics.median(elapsed), statistics.median(cpu_times)
            print(f"{median:12.1f} {max(elapsed):8.1f} {cpu:7.1f} {found:6}  {name}", flush=True)
        print(f"{slow} of {len(queries(1))} take more than {TARGET} ms")


def queries(count: int) -> dict[str, InferenceQuery]:
    """Return the queries by name."""
    recent = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(STARTED // 1_000_000 + count - 7 * 86400))
    queries: dict[str, dict[str, Any]] = {
        "camera = text (1 of 8) and altitude > int (1 of 10)": {"where": ['camera = "north"', "altitude > 900"]},
        "camera = text (1 of 8) and altitude > int (1 of 1000)": {"where": ['camera = "north"', "altitude > 999"]},
        "run = text (1 of 2000) and altitude > int (1 of 10)": {"where": ['run = "run-77"', "altitude > 900"]},
        "camera = text and season = text, which never meet": {"where": ['camera = "dock"', 'season = "winter"']},
        "season = text of the oldest tenth, and altitude > int": {"where": ['season = "winter"', "altitude > 500"]},
        "blur < float (1 of 100) and altitude = int": {"where": ["blur < 0.01", "altitude = 7"]},
        "blur < float (1 of 10) and altitude > int (1 of 10)": {"where": ["blur < 0.1", "altitude > 900"]},
        "label and the last week": {"label": "boat", "since": recent},
        "label with a score and the last week": {"label": "plane", "min_score": 0.99, "since": recent},
        "label and camera = text": {"label": "bus", "where": ['camera = "roof"']},
        "box of 1 x 1 degrees and camera = text": {"box": "47.6,11,48.6,12", "where": ['camera = "south"']},
        "box of 9 x 13 degrees and camera = text": {"box": "43.6,5,52.6,18", "where": ['camera = "south"']},
        "box across the antimeridian and altitude > int": {"box": "-20,170,20,-170", "where": ["altitude > 900"]},
        "box and label": {"box": "40,-5,45,5", "label": "car"},
        "model and error": {"model": "second", "error": "model_failed"},
        "score without a label, and camera = text": {"min_score": 0.99, "where": ['camera = "east"']},
    }
    return {name: InferenceQuery(**fields) for name, fields in queries.items()}


def make_store(file: Path, count: int) -> None:
    """Write a store of `count` inferences."""
    store, dice = SqliteStore(file), random.Random(0)
    store.open()
    for start in range(0, count, BATCH):
        store.write([_rows(dice, number, count) for number in range(start, min(start + BATCH, count))])
    store.close()


def _rows(dice: random.Random, number: int, count: int) -> Rows:
    """Return the rows of a detector's answer to an image of 1280 x 720 pixels."""
    season = "winter" if number < count / 10 else "summer"
    camera = dice.choice(CAMERAS[:-1] if season == "winter" else CAMERAS)
    entries: list[tuple[str, str, Any]] = [
        ("camera", "str", camera),
        ("altitude", "int", dice.randint(0, 1000)),
        ("run", "str", f"run-{dice.randrange(2000)}"),
        ("season", "str", season),
        ("blur", "float", dice.random()),
        ("pose", "dict", {"yaw": dice.uniform(0, 3.1416), "valid": True}),
        ("latitude", "float", dice.uniform(-60, 70)),
        ("longitude", "float", dice.uniform(-180, 180)),
    ]
    box = {"xmin": 10.5, "ymin": 20.25, "xmax": 110.125, "ymax": 220.0625}
    records = [
        {"label": LABELS[int(dice.random() ** 2 * 8)], "score": round(dice.random(), 4), **box}
        for _ in range(dice.randrange(6))
    ]
    failure: dict[str, Any] = {"records": None, "error": "model_failed", "message": "The model failed"}
    inference = recorded_inference(
        f"{number:032x}-0-0",
        request_id=f"request-{number}",
        protocol="chariot-v2-kserve",
        model="second" if number % 5 == 0 else "first",
        started=STARTED + number * 1_000_000,
        metadata=[MetadataEntry(*entry) for entry in entries],
        image=RecordedImage(digest=f"{number % 1000:064x}", width=1280, height=720, size=200_000),
        **(failure if number % 997 == 0 else {"records": records}),
    )
    return to_rows(inference)


if __name__ == "__main__":
    main()
