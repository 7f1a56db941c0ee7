"""Core stays small enough to read: what is not in every server's path belongs to a plugin."""

from tests.support.removal import ROOT

MAX_CORE_LINES = 19_950
"""A newcomer can read them in a day. The number may only fall. With KServe V1, which belongs here, it is 20,800."""
MAX_HOOKS_LINES = 250
"""Authors of plugins read all of it."""


def test_core_has_few_lines() -> None:
    lines = sum(len(file.read_text().splitlines()) for file in (ROOT / "app" / "core").rglob("*.py"))
    assert lines <= MAX_CORE_LINES, "move what few servers need into a plugin"


def test_all_hooks_fit_into_one_short_file() -> None:
    assert len((ROOT / "app" / "core" / "hooks.py").read_text().splitlines()) <= MAX_HOOKS_LINES
