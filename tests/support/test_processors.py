"""The tests on an emulated processor, with other programs in place of the emulator."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support import arm, processors

PROGRAM = """#!/bin/sh
[ "$1 $2" = "-cpu max" ] || exit 9
echo run >> {log}
[ $(wc -l < {log}) -gt {crashes} ] || kill -SEGV $$
exit {status}
"""


def emulator(folder: Path, *, crashes: int = 0, status: int = 0) -> str:
    program = folder / "emulator"
    program.write_text(PROGRAM.format(log=folder / "log", crashes=crashes, status=status))
    program.chmod(0o755)
    return str(program)


def test_tests_exist() -> None:
    for path, _, name in (path.partition("::") for path in (*processors.PATHS, *arm.PATHS)):
        assert (processors.ROOT / path).exists()
        assert not name or f"def {name}(" in (processors.ROOT / path).read_text()


@pytest.mark.parametrize(("crashes", "status", "runs"), [(0, 0, 1), (1, 0, 2), (3, 0, 3), (0, 1, 1)])
def test_crash_of_the_emulator_is_repeated_and_a_failure_is_not(
    tmp_path: Path, crashes: int, status: int, runs: int
) -> None:
    found = processors.main(emulator(tmp_path, crashes=crashes, status=status), ["a"])
    assert found == (1 if status or crashes == 3 else 0)
    assert (tmp_path / "log").read_text().count("run") == runs


@pytest.mark.parametrize(
    ("actual", "same"), [([{"x": 1.00009}], True), ([{"x": 1.0003}], False), ([{"x": 1.0, "y": 2}], False), ([], False)]
)
def test_numbers_of_arm_are_compared(actual: object, same: bool) -> None:
    with nullcontext() if same else pytest.raises(AssertionError):
        arm.compare(actual, [{"x": 1.0}], "$")
