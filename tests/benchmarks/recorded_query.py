"""Measure queries with two filters over a million recorded inferences in SQLite: milliseconds for a page of 50.

The store is created in a temporary folder, or in the given folder, where later runs use it again. Usage:
``python -m tests.benchmarks.recorded_query``.
"""

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from sqlalchemy import create_engine, insert
from sqlalchemy.schema import CreateIndex, CreateTable

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.recording.stores.tables import SCHEMA, inferences, labels, metadata, schema_version

TARGET = 200
BATCH = 20_000
STARTED = 1_767_225_600_000_000
"""2026-01-01, in microseconds; there is one inference a second from then on."""
CAMERAS = ("north", "south", "east", "west", "gate", "roof", "yard", "dock")
LABELS = ("car", "person", "truck", "dog", "bicycle", "boat", "bus", "plane")


def main() -> None:
    """Create the store, run the queries, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inferences", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary_folder:
        file = (options.folder or Path(temporary_folder)) / f"recorded-{options.inferences}.db"
        if not file.exists():
            started = time.perf_counter()
            make_store(file, options.inferences)
            print(f"made in {time.perf_counter() - started:.0f} s")
        print(f"{options.inferences:,} inferences, {file.stat().st_size / 1e6:,.0f} MB; a page of 50, newest first")
        print(f"{'milliseconds':>12} {'slowest':>8} {'of CPU':>7} {'found':>6}  two filters")
        slow = 0
        for name, query in queries(options.inferences).items():
            elapsed: list[float] = []
            cpu_times: list[float] = []
            found = 0
            for _ in range(options.rounds):
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
    week_ago = f"{STARTED // 1_000_000 + count - 7 * 86400}"
    recent = _moment(int(week_ago))
    return {
        "camera = text (1 of 8) and altitude > int (1 of 10)": InferenceQuery(
            where=['camera = "north"', "altitude > 900"]
        ),
        "camera = text (1 of 8) and altitude > int (1 of 1000)": InferenceQuery(
            where=['camera = "north"', "altitude > 999"]
        ),
        "run = text (1 of 2000) and altitude > int (1 of 10)": InferenceQuery(
            where=['run = "run-77"', "altitude > 900"]
        ),
        "camera = text and season = text, which never meet": InferenceQuery(
            where=['camera = "dock"', 'season = "winter"']
        ),
        "season = text of the oldest tenth, and altitude > int": InferenceQuery(
            where=['season = "winter"', "altitude > 500"]
        ),
        "blur < float (1 of 100) and altitude = int": InferenceQuery(where=["blur < 0.01", "altitude = 7"]),
        "blur < float (1 of 10) and altitude > int (1 of 10)": InferenceQuery(where=["blur < 0.1", "altitude > 900"]),
        "label and the last week": InferenceQuery(label="boat", since=recent),
        "label with a score and the last week": InferenceQuery(label="plane", min_score=0.99, since=recent),
        "label and camera = text": InferenceQuery(label="bus", where=['camera = "roof"']),
        "box of 1 x 1 degrees and camera = text": InferenceQuery(box="47.6,11,48.6,12", where=['camera = "south"']),
        "box of 9 x 13 degrees and camera = text": InferenceQuery(box="43.6,5,52.6,18", where=['camera = "south"']),
        "box across the antimeridian and altitude > int": InferenceQuery(
            box="-20,170,20,-170", where=["altitude > 900"]
        ),
        "box and label": InferenceQuery(box="40,-5,45,5", label="car"),
        "model and error": InferenceQuery(model="second", error="model_failed"),
        "score without a label, and camera = text": InferenceQuery(min_score=0.99, where=['camera = "east"']),
    }


def _moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def make_store(file: Path, count: int) -> None:
    """Write a store of `count` inferences; create the indexes last, which is faster."""
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    engine = create_engine(f"sqlite:///{part}")
    statements = {table: str(insert(table).compile(engine)) for table in (inferences, metadata, labels)}
    texts = {t: f"INSERT INTO {t.name} VALUES ({', '.join('?' * len(t.columns))})" for t in statements}
    with sqlite3.connect(part, isolation_level=None) as store:
        store.execute("PRAGMA journal_mode = OFF")
        store.execute("PRAGMA synchronous = OFF")
        for table in SCHEMA.sorted_tables:
            store.execute(str(CreateTable(table).compile(engine)))
        store.execute(f"INSERT INTO {schema_version.name} VALUES (1)")
        dice = random.Random(0)
        for start in range(0, count, BATCH):
            rows = list(_rows(dice, start, min(start + BATCH, count), count))
            store.execute("BEGIN")
            for index, table in enumerate((inferences, metadata, labels)):
                store.executemany(texts[table], [row for batch in rows for row in batch[index]])
            store.execute("COMMIT")
        for table in (inferences, metadata, labels):
            for index in sorted(table.indexes, key=lambda item: str(item.name)):
                store.execute(str(CreateIndex(index).compile(engine)))
    part.rename(file)


def _rows(dice: random.Random, start: int, end: int, count: int) -> Iterator[Sequence[list[tuple[object, ...]]]]:
    for number in range(start, end):
        yield _inference(dice, number, count)


def _inference(dice: random.Random, number: int, count: int) -> list[list[tuple[object, ...]]]:
    latitude, longitude = dice.uniform(-60, 70), dice.uniform(-180, 180)
    camera, altitude, run = (
        CAMERAS[int(dice.random() * 8)],
        int(dice.random() * 1001),
        f"run-{int(dice.random() * 2000)}",
    )
    season = "winter" if number < count / 10 else "summer"
    if season == "winter" and camera == "dock":
        camera = "gate"
    blur, yaw = dice.random(), dice.random() * 3.1416
    entries: list[tuple[str, str, object]] = [
        ("camera", "str", camera),
        ("altitude", "int", altitude),
        ("run", "str", run),
        ("season", "str", season),
        ("blur", "float", blur),
        ("pose", "dict", {"yaw": yaw, "valid": True}),
        ("latitude", "float", latitude),
        ("longitude", "float", longitude),
    ]
    found = [(LABELS[int(dice.random() ** 2 * 8)], round(dice.random(), 4)) for _ in range(int(dice.random() * 6))]
    records = [
        {"label": name, "score": score, "xmin": 10.5, "ymin": 20.25, "xmax": 110.125, "ymax": 220.0625}
        for name, score in found
    ]
    best: dict[str, float] = {}
    for name, score in found:
        best[name] = max(score, best.get(name, 0))
    error = "model_failed" if number % 997 == 0 else None
    row = _row(
        number=number,
        id=f"{number:032x}-0-0",
        request_id=f"request-{number}",
        input=0,
        datum=0,
        protocol="chariot-v2-kserve",
        model="second" if number % 5 == 0 else "first",
        version="1",
        task_type="OBJECT_DETECTION",
        started=STARTED + number * 1_000_000,
        duration=12_000,
        parameters="{}",
        metadata=msgspec.json.encode([{"key": k, "type": t, "value": v} for k, t, v in entries]).decode(),
        records=None if error else msgspec.json.encode(records).decode(),
        image_digest=f"{number % 1000:064x}",
        image_width=1280,
        image_height=720,
        image_size=200_000,
        image_kept=False,
        error=error,
        message="The model failed" if error else "",
        explanation=False,
        latitude=latitude,
        longitude=longitude,
    )
    column = {"int": 1, "float": 2, "str": 3, "dict": 4}
    typed: list[tuple[object, ...]] = []
    for index, (key, kind, value) in enumerate(entries):
        values: list[object] = [key, None, None, None, None]
        values[column[kind]] = msgspec.json.encode(value).decode() if kind == "dict" else value
        typed.append((number, index, *values))
    scored: list[tuple[object, ...]] = [
        (number, name, score, sum(label == name for label, _ in found)) for name, score in best.items()
    ]
    return [[row], typed, scored if error is None else []]


def _row(**values: object) -> tuple[object, ...]:
    return tuple(values.get(column.name) for column in inferences.columns)


if __name__ == "__main__":
    main()
