"""Documents list every option, variable, metric and parameter."""

import re
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from app.core.observers.metrics import Metrics
from app.core.plugins import registry
from app.core.settings.model import PreprocessingSettings
from docs.tables import filled
from tasks.image_segmentation import SegmentationParameters
from tasks.image_text_to_text import GenerationParameters
from tasks.inference.error import ErrorKind
from tasks.task import TaskType
from tests.installed.environments import DEVELOPER_EXTRAS, EXTRAS
from tests.support.protocols import PROTOCOLS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CHARIOT = (ROOT / "docs" / "chariot.md").read_text()
MODELS = (ROOT / "docs" / "models.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


OPTIONS = (registry().model_options_class, registry().settings_class)


@pytest.mark.parametrize("name", [field.name for kind in OPTIONS for field in fields(kind)])
def test_every_option_is_documented(name: str) -> None:
    assert f"`--{name.replace('_', '-')}`" in CONFIGURATION


def test_every_environment_variable_is_documented() -> None:
    files = (*ROOT.glob("app/core/settings/*.py"), *ROOT.glob("app/plugins/*/settings.py"))
    sources = [file.read_text() for file in files]
    named = re.findall(r"\benvironment\(([^)]+)\)", "".join(sources))
    names = re.findall(r'"(\w+)"', "".join(named))
    assert len(names) > 50
    assert [name for name in names if f"`{name}`" not in CONFIGURATION] == []


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - DEVELOPER_EXTRAS))
def test_every_extra_is_documented(extra: str) -> None:
    assert f"| `{extra}` | " in CONFIGURATION


def test_every_page_is_in_the_navigation() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages == set(re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_of_error_is_documented(kind: ErrorKind) -> None:
    assert f"`{kind}`" in CHARIOT


def test_every_metric_is_documented() -> None:
    registry = CollectorRegistry()
    Metrics(registry, str)
    names = [f"{family.name}{'_total' if family.type == 'counter' else ''}" for family in registry.collect()]
    assert len(names) == 6
    assert [name for name in names if f"`{name}`" not in CONFIGURATION] == []


@pytest.mark.parametrize("kind", [SegmentationParameters, GenerationParameters])
def test_every_request_parameter_is_documented(kind: type[msgspec.Struct]) -> None:
    names = [field.name for field in msgspec.structs.fields(kind)]
    assert [name for name in names if f"`{name}`" not in CHARIOT] == []


@pytest.mark.parametrize("kind", [registry().model_settings_class, PreprocessingSettings])
def test_every_model_setting_is_documented(kind: type[msgspec.Struct]) -> None:
    names = [field.name for field in msgspec.structs.fields(kind)]
    assert [name for name in names if f"`{name}`" not in MODELS] == []


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


def test_tables_of_plugins_are_those_of_their_objects() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert filled(page.read_text()) == page.read_text(), "run `make docs`"
