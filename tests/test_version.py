"""The version, in the one place where it is written, and the changelog."""

import re
from pathlib import Path

from app import __version__

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def test_the_changelog_begins_with_what_is_to_come_and_then_this_version_or_none() -> None:
    headings = re.findall(r"^## \[(.+?)\]", CHANGELOG.read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1:2] in ([], [__version__])
