"""Tests must not sleep; they wait for a condition."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent
ALLOWED = (
    "soak.py",
    "soak_features.py",
    "benchmarks",
    "support/polling.py",
    "support/request_trace.py",
    "faults/grpc_flood.py",
)
"""Programs that send load or trace requests, and the polling helper."""


def sleeps(code: str) -> list[int]:
    """Return the lines that sleep; a sleep of 0 only yields to other tasks."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    sleep_calls = [call for call in calls if ast.unparse(call.func) in ("time.sleep", "asyncio.sleep", "sleep")]
    return [call.lineno for call in sleep_calls if [ast.unparse(argument) for argument in call.args] != ["0"]]


def test_no_test_sleeps() -> None:
    allowed = tuple(TESTS / name for name in ALLOWED)
    files = [file for file in TESTS.rglob("*.py") if not any(file.is_relative_to(other) for other in allowed)]
    texts = {file: text for file in files if "sleep(" in (text := file.read_text())}
    locations = [f"{file.relative_to(TESTS)}:{line}" for file, text in texts.items() for line in sleeps(text)]
    assert locations == [], "wait for a condition with tests/support/polling.py"
    assert len(files) > 300
