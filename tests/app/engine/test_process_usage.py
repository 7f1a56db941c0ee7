"""What this process uses of the machine."""

from pathlib import Path

import pytest

from app.engine.process_usage import CpuMeter, machine_memory, resident_bytes


def test_processor_time_by_the_clock() -> None:
    clock, used = iter([10.0, 12.0, 12.5]), iter([1.0, 4.0, 4.25])
    meter = CpuMeter(lambda: next(clock), lambda: next(used))
    assert meter.read() == 1.5
    assert meter.read() == 0.5


def test_memory_is_that_of_a_process_with_numpy_in_it() -> None:
    assert 10 * 2**20 < resident_bytes() < machine_memory()


@pytest.mark.parametrize("told", ["max\n", "", f"{2**62}\n"])
def test_without_a_smaller_grant_memory_is_the_machines(tmp_path: Path, told: str) -> None:
    whole = machine_memory(tmp_path / "none")
    (tmp_path / "memory.max").write_text(told)
    assert machine_memory(tmp_path / "memory.max") == whole > 2**20


def test_a_container_has_what_it_is_granted(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1048576\n")
    assert machine_memory(tmp_path / "memory.max") == 2**20
