"""No test waits for a time: what it waits for is a condition."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
EXCEPT = ("fuzz", "soak", "benchmarks", "support/polling.py")
"""Programs that send load, and the helper that looks again after a moment."""


def sleeps(code: str) -> list[int]:
    """The lines that sleep for a time; a sleep of 0 gives way to others."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    named = [each for each in calls if ast.unparse(each.func) in ("time.sleep", "asyncio.sleep", "sleep")]
    return [each.lineno for each in named if [ast.unparse(argument) for argument in each.args] != ["0"]]


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("time.sleep(0.1)", [1]),
        ("async def f():\n    await asyncio.sleep(seconds)", [2]),
        ("sleep(1)", [1]),
        ("time.sleep(0)\nasyncio.sleep(0)\nlibrary.sleep(1)", []),
    ],
)
def test_sleeps_are_found(code: str, lines: list[int]) -> None:
    assert sleeps(code) == lines


def test_no_test_sleeps() -> None:
    allowed = tuple(TESTS / name for name in EXCEPT)
    files = [each for each in TESTS.rglob("*.py") if not any(each.is_relative_to(other) for other in allowed)]
    found = [f"{each.relative_to(TESTS)}:{line}" for each in files for line in sleeps(each.read_text())]
    assert found == [], "wait for a condition with tests/support/polling.py"
    assert len(files) > 300
