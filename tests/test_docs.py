"""Documents list every option, setting and parameter."""

import re
from pathlib import Path

import msgspec
import pytest

from app import __version__
from docs.tables import WRITTEN, filled
from tasks.image_segmentation import SegmentationParameters
from tasks.image_text_to_text import GenerationParameters
from tasks.inference.error import ErrorKind
from tasks.inference.parameters import parameter_types
from tasks.task import TaskType
from tests.installed.environments import DEVELOPER_EXTRAS, EXTRAS
from tests.support.protocols import PROTOCOLS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CHARIOT = (ROOT / "docs" / "chariot.md").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - DEVELOPER_EXTRAS))
def test_every_extra_is_documented(extra: str) -> None:
    assert f"| `{extra}` | " in CONFIGURATION


def test_skill_and_list_of_pages_are_generated() -> None:
    assert [path.name for path, write in WRITTEN.items() if path.read_text() != write()] == [], "run `make docs`"


def test_every_page_is_in_the_navigation() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert len(pages) <= 34, "merge pages before you add one"
    assert pages == set(re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_of_error_is_documented(kind: ErrorKind) -> None:
    assert f"`{kind}`" in CHARIOT


@pytest.mark.parametrize("kind", [SegmentationParameters, GenerationParameters])
def test_every_request_parameter_is_documented(kind: type[msgspec.Struct]) -> None:
    names = parameter_types(kind)
    assert [name for name in names if f"`{name}`" not in CHARIOT] == []


def test_the_readme_names_every_protocol() -> None:
    assert [protocol.name for protocol in PROTOCOLS if protocol.name not in README] == []


@pytest.mark.parametrize("page", ["README.md", "docs/kserve.md", "docs/explanations.md"])
def test_every_task_type_is_named(page: str) -> None:
    assert [task_type for task_type in TaskType if f"`{task_type}`" not in (ROOT / page).read_text()] == []


def test_every_path_in_the_contributing_guide_exists() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:app|deploy|docs|fixtures|metadata|tasks|tests)/[\w/.]+)`", guide)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_guarantee_names_existing_tests() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "security.md").read_text())
    assert len(named) > 50
    missing = [
        (path, name)
        for path, name in named
        if not (ROOT / path).is_file() or f"def {name}" not in (ROOT / path).read_text()
    ]
    assert missing == []


def test_changelog_starts_with_unreleased_and_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", CHANGELOG, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1:2] in ([], [__version__])


def test_release_is_described_in_at_most_sixty_lines() -> None:
    _, _, newer = CHANGELOG.partition(f"## [{__version__}]")
    assert newer.partition("\n## [")[0].count("\n") <= 60


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_generated_parts_are_those_of_the_code(page: Path) -> None:
    assert filled(page.read_text()) == page.read_text(), "run `make docs`"
