"""Which slow tests a change needs: the tests of the plugins that it touches, and of plugins that require these.

A change of core needs the slow tests of core, of faults and of whole servers.

CI runs them, and one test of every other area: ``pytest --affected``.
"""

import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from tests.support.quick import ROOT

T = TypeVar("T")

MAX_COMMITS = 30
"""The change, if the history has no merge."""

ALL = "all"
"""The area of files that every test may depend on."""

_CORE = ("core", "tasks", "conformance", "faults", "platform")
"""Areas of tests that a change of core, tasks or metadata needs, and of what tests share."""

_AREAS = {
    "deploy": ("deploy", "installed"),
    "docs": ("installed",),
    "README.md": ("installed",),
    "Makefile": ("installed",),
    "fixtures/wire": ("conformance",),
}
_WITHOUT_TESTS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "mkdocs.yml")
_PAGE_FILES = (".js", ".css", ".html")


def area_of_test(path: PurePosixPath) -> str:
    """Return the area of a test file, relative to `tests`: a plugin such as ``plugins/drift``, or a folder."""
    return "/".join(path.parts[: 2 if path.parts[0] == "plugins" else 1])


def changed_areas(files: Iterable[str]) -> Collection[str]:
    """Return the areas of changed files, relative to the root of the repository."""
    areas = set[str]()
    for file in map(PurePosixPath, files):
        first, second = file.parts[0], "/".join(file.parts[1:3])
        if file.suffix in _PAGE_FILES:
            areas.add("browser")
        if first == "app" and second.startswith("plugins/"):
            areas.add(second)
        elif first == "tests" and len(file.parts) > 2 and file.parts[1] != "support":
            areas.add(area_of_test(PurePosixPath(*file.parts[1:])))
        elif needed := next((tests for path, tests in _AREAS.items() if file.is_relative_to(path)), None):
            areas.update(needed)
        elif first in ("app", "tasks", "metadata", "tests"):
            areas.update(_CORE)
        elif first not in _WITHOUT_TESTS:
            areas.add(ALL)
    return areas


def affected_areas(files: Iterable[str], requires: Mapping[str, Collection[str]]) -> Collection[str]:
    """Return the areas whose slow tests a change needs; `requires` has the plugins that each plugin imports."""
    areas = {*changed_areas(files)}
    while added := {
        f"plugins/{name}"
        for name, needed in requires.items()
        if f"plugins/{name}" not in areas and any(f"plugins/{other}" in areas for other in needed)
    }:
        areas |= added
    return areas


def changed_files() -> Collection[str] | None:
    """Return the files that differ from the state before the last merge or `MAX_COMMITS`; None if git does not say."""
    merges = _git("rev-list", "--merges", "--max-count=1", "HEAD")
    base = f"{merges[0]}^1" if merges else f"HEAD~{MAX_COMMITS}"
    if (tracked := _git("diff", "--name-only", base)) is None:
        return None
    return [*tracked, *(_git("ls-files", "--others", "--exclude-standard") or ())]


def _git(*arguments: str) -> list[str] | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


def select(tests: Sequence[tuple[T, PurePosixPath]], areas: Collection[str]) -> Sequence[T]:
    """Return the tests of `areas`, and the first one of every other area; each test comes with its file."""
    found, seen = list[T](), set[str]()
    for test, path in tests:
        area = area_of_test(path)
        if area in areas or ALL in areas or area not in seen:
            found.append(test)
        seen.add(area)
    return found
