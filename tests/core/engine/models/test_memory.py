"""Memory of this process, and of each load."""

import os
import subprocess
import sys
import threading
from functools import partial

import pytest

from app.core.engine.models.memory import LoadMeter, resident_bytes


def test_resident_bytes_grow_with_the_pages_that_are_written() -> None:
    before = resident_bytes()
    kept = b"x" * (64 * 2**20)
    assert resident_bytes(os.getpid()) - before > len(kept) // 2


def test_resident_bytes_of_an_ended_process_are_an_error() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(ProcessLookupError):
        resident_bytes(ended.pid)


@pytest.mark.parametrize(("after", "added"), [(250, 150), (100, None), (40, None)])
def test_load_is_measured_if_it_added_memory(after: int, added: int | None) -> None:
    readings = iter([100, after])
    assert LoadMeter(lambda: next(readings)).measure(lambda: "model") == ("model", added)


def test_loads_wait_for_their_turn_and_are_all_measured() -> None:
    readings = iter(range(0, 100, 10))
    meter = LoadMeter(lambda: next(readings), seconds=60)
    outcomes: list[tuple[str, int | None]] = []

    def load(name: str) -> None:
        outcomes.append(meter.measure(lambda: name))

    threads = [threading.Thread(target=partial(load, name)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [("a", 10), ("b", 10), ("c", 10)]


def test_loads_that_overlap_are_not_measured() -> None:
    readings = iter(range(0, 100, 10))
    meter = LoadMeter(lambda: next(readings), seconds=0)
    inner: list[tuple[str, int | None]] = []

    def load() -> str:
        inner.append(meter.measure(lambda: "inner"))
        return "outer"

    assert meter.measure(load) == ("outer", None)
    assert inner == [("inner", None)]
    assert meter.measure(lambda: "later") == ("later", 10)


def test_failed_load_leaves_the_meter_usable() -> None:
    readings = iter(range(0, 100, 10))
    meter = LoadMeter(lambda: next(readings))

    def fail() -> str:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        meter.measure(fail)
    assert meter.measure(lambda: "model") == ("model", 10)
