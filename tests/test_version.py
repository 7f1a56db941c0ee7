"""The version and the changelog."""

import re
from pathlib import Path

from app import __version__

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def test_changelog_starts_with_unreleased_and_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", CHANGELOG.read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1:2] in ([], [__version__])


def test_release_is_described_in_at_most_sixty_lines() -> None:
    _, _, newer = CHANGELOG.read_text().partition(f"## [{__version__}]")
    assert newer.partition("\n## [")[0].count("\n") <= 60
