"""What this process uses of the machine."""

from app.engine.process_usage import CpuMeter, machine_memory, resident_bytes


def test_processor_time_by_the_clock() -> None:
    clock, used = iter([10.0, 12.0, 12.5]), iter([1.0, 4.0, 4.25])
    meter = CpuMeter(lambda: next(clock), lambda: next(used))
    assert meter.read() == 1.5
    assert meter.read() == 0.5


def test_memory_is_that_of_a_process_with_numpy_in_it() -> None:
    assert 10 * 2**20 < resident_bytes() < machine_memory()
