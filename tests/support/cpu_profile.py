"""Print which test files cost the most CPU: ``pytest -p tests.support.cpu_profile``.

CPU is user and system time of this process and of the children that it has waited for.
A busy machine does not change the order.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Generator

import pytest

ROWS = 40

_phases: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
_counts: Counter[str] = Counter()


def _cpu_seconds() -> float:
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Measure the fixtures of a test."""
    yield from _measured(item, "setup")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Measure a test."""
    _counts[item.location[0]] += 1
    yield from _measured(item, "call")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Measure what its fixtures release."""
    yield from _measured(item, "teardown")


def _measured(item: pytest.Item, phase: str) -> Generator[None]:
    start = _cpu_seconds()
    try:
        return (yield)
    finally:
        _phases[item.location[0]][phase] += _cpu_seconds() - start


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a worker's figures to the process that prints them."""
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker["cpu"] = {file: dict(phases) for file, phases in _phases.items()}
        worker["counts"] = dict(_counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Add the figures of a worker of pytest-xdist."""
    output = getattr(node, "workeroutput", {})
    _counts.update(output.get("counts", {}))
    for file, phases in output.get("cpu", {}).items():
        for phase, seconds in phases.items():
            _phases[file][phase] += seconds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, the most expensive file first."""
    rows = sorted(_phases.items(), key=lambda row: -sum(row[1].values()))
    total = sum(sum(phases.values()) for _, phases in rows)
    terminalreporter.section(f"CPU of {sum(_counts.values())} tests: {total:.0f} s")
    terminalreporter.write_line(f"{'setup':>8} {'call':>8} {'teardown':>8}  tests  file (CPU seconds)")
    for file, phases in rows[:ROWS]:
        figures = " ".join(f"{phases[phase]:8.1f}" for phase in ("setup", "call", "teardown"))
        terminalreporter.write_line(f"{figures} {_counts[file]:6}  {file}")
