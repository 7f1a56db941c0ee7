"""Measure filters of recorded inferences: milliseconds for a page of 50, in SQLite and PostgreSQL.

Usage: ``python -m tests.benchmarks.recorded_query [--inferences 1000000] [--objects 5]``.
"""

import argparse
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app.plugins.recording.inference import RecordedImage, Truth
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.postgres_store import PostgresStore
from app.plugins.recording.stores.rows import Rows, to_rows
from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.recording.stores.tables import recordings
from metadata.request import MetadataEntry
from tests.support.data.recorded_rows import recorded_inference
from tests.support.servers.postgres import is_postgres_installed, run_postgres

TARGET = 2000
BATCH = 2000
BASE = 50_000
ROUNDS = 3
STARTED = 1_767_225_600_000_000
"""2026-01-01, in microseconds; there is one inference a second from then on."""
CAMERAS = ("north", "south", "east", "west", "gate", "roof", "yard", "dock")
LABELS = ("car", "person", "truck", "dog", "bicycle", "boat", "bus", "plane")


def main() -> None:
    """Create the stores, run the queries, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inferences", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=5, help="objects of an inference, at most")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        addresses = {"SQLite": str(Path(folder) / "recorded.db")}
        if is_postgres_installed():
            addresses["PostgreSQL"] = stack.enter_context(run_postgres()).create_database()
        for name, address in addresses.items():
            started = time.perf_counter()
            make_store(address, options.inferences, options.objects)
            seconds = time.perf_counter() - started
            print(f"{name}: {options.inferences:,} inferences of up to {options.objects} objects, in {seconds:.0f} s")
            measure(address, options.inferences)


def measure(address: str, count: int) -> None:
    """Run each query a few times with a new reader, so that only the operating system caches, and print its times.

    The CPU time is that of this process: it has no part of PostgreSQL's.
    """
    print(f"{'milliseconds':>12} {'slowest':>8} {'of CPU':>7} {'found':>6}  filters")
    slow = 0
    for name, query in queries(count).items():
        elapsed: list[float] = []
        cpu_times: list[float] = []
        found = 0
        for _ in range(ROUNDS):
            reader = RecordingReader(parse_dsn(address))
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
        "label, usual": {"label": "car"},
        "label that does not occur": {"label": "zebra"},
        "label with a score that none has": {"label": "car", "min_score": 1.0},
        "label with a score and the last week": {"label": "plane", "min_score": 0.99, "since": recent},
        "label and metadata that never meet": {"label": "bus", "where": ['camera = "dock"', 'season = "winter"']},
        "score that none has": {"min_score": 1.0},
        "best score": {"max_score": 0.0001},
        "metadata = text (1 of 8)": {"where": ['camera = "north"']},
        "metadata = text that does not occur": {"where": ['camera = "none"']},
        "metadata > number that none has": {"where": ["altitude > 2000"]},
        "metadata < text that none has": {"where": ['run < "a"']},
        "metadata of a key that does not occur": {"where": ["missing > 1"]},
        "camera and altitude (1 of 8000)": {"where": ['camera = "north"', "altitude > 999"]},
        "camera and season, which never meet": {"where": ['camera = "dock"', 'season = "winter"']},
        "blur < float and altitude = int (1 of 100,000)": {"where": ["blur < 0.01", "altitude = 7"]},
        "model and error": {"model": "second", "error": "model_failed"},
        "error that does not occur": {"error": "internal"},
        "reason that does not occur": {"reason": "unsure"},
        "truth that is wrong (1 of 10,000)": {"truth": "wrong"},
        "time range without inferences": {"until": "2020-01-01"},
        "oldest hour": {"until": "2026-01-01T01:00:00Z"},
        "id of a request": {"request_id": f"request-{BASE // 2}-{BASE}"},
        "digest": {"digest": f"{7:064x}"},
    }
    return {name: InferenceQuery(**fields) for name, fields in queries.items()}


def make_store(address: str, count: int, objects: int) -> None:
    """Write a store of `count` inferences: some through the store, and copies of them with other ids and times."""
    dsn, dice, base = parse_dsn(address), random.Random(0), min(count, BASE)
    store = SqliteStore(dsn.file) if dsn.dialect == "sqlite" else PostgresStore(dsn, write_timeout=600)
    store.open()
    for start in range(0, base, BATCH):
        store.write([_rows(dice, number, base, objects) for number in range(start, min(start + BATCH, base))])
    changed = {"number": "number + {0}", "id": "id || '-{0}'", "request_id": "request_id || '-{0}'"}
    values = ", ".join(changed.get(column.name, column.name) for column in recordings.columns)
    values = values.replace("started", "started + CAST({0} AS BIGINT) * 1000000")
    for first in range(base, count, base):
        tables = {"recordings": values, "recordings_metadata": "number + {0}, entries"}
        for table, columns in {**tables, "inference_labels": "number + {0}, label, score"}.items():
            statement = f"INSERT INTO {table} SELECT {columns.format(first)} FROM {table} WHERE number <= {base}"
            store.transaction(lambda connection, sql=statement: connection.exec_driver_sql(sql))
    store.transaction(lambda connection: connection.exec_driver_sql("ANALYZE"))
    store.close()


def _rows(dice: random.Random, number: int, count: int, objects: int) -> Rows:
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
        for _ in range(dice.randrange(objects + 1) if objects < 10 else objects)
    ]
    failure: dict[str, Any] = {"records": None, "error": "model_failed", "message": "The model failed"}
    inference = recorded_inference(
        f"{number:032x}-0-0",
        request_id=f"request-{number}",
        protocol="chariot-v2-kserve",
        model="second" if number % 5 == 0 else "first",
        started=STARTED + number * 1_000_000,
        metadata=[MetadataEntry(*entry) for entry in entries],
        truth=Truth(verdict="wrong") if number % 10_000 == 9 else None,
        image=RecordedImage(digest=f"{number % 1000:064x}", width=1280, height=720, size=200_000),
        **(failure if number % 997 == 0 else {"records": records}),
    )
    return to_rows(inference)


if __name__ == "__main__":
    main()
