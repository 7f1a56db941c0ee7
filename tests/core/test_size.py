"""The product stays small enough to carry, and core small enough to read. The numbers may only fall."""

from collections.abc import Sequence

import pytest

from tests.support.removal import ROOT

MAX_LINES = {
    "the product": (61_000, ("app/**/*.py", "tasks/**/*.py", "metadata/**/*.py")),
    "core": (20_530, ("app/core/**/*.py",)),
    "the page": (6_093, ("app/**/*.js", "app/**/*.css", "app/**/*.html")),
    "tests": (65_700, ("tests/**/*.py",)),
}
"""Lines of files by their patterns. A newcomer can read core in a day."""
MAX_HOOKS_LINES = 250
"""Authors of plugins read all of it."""


@pytest.mark.parametrize("part", MAX_LINES)
def test_part_has_few_lines(part: str) -> None:
    limit, patterns = MAX_LINES[part]
    assert count_lines(patterns) <= limit, f"{part} may not grow: pay for new lines with others"


def test_all_hooks_fit_into_one_short_file() -> None:
    assert count_lines(["app/core/hooks.py"]) <= MAX_HOOKS_LINES


def count_lines(patterns: Sequence[str]) -> int:
    """Return the lines of all files that match a pattern."""
    return sum(len(file.read_text().splitlines()) for pattern in patterns for file in ROOT.glob(pattern))
