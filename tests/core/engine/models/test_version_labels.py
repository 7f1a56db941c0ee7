"""Version labels in the settings of a model."""

import json
import shutil
from pathlib import Path

import pytest

from app.core.assembly.discovery import models_in
from app.core.engine.models.registry import Registry
from app.core.settings.model import ModelError, ModelSettings, ModelSource
from app.core.settings.server import DEMO_MODELS


def source(version: str, **labels: str) -> ModelSource:
    return ModelSource(name="m", version=version, folder=Path("m"), settings=ModelSettings(version_labels=labels))


def test_label_maps_to_its_version() -> None:
    registry = Registry([source("1", stable="1", canary="2"), source("2", stable="1")])
    assert registry.version_with_label("m", "stable") == "1"
    assert registry.version_with_label("m", "canary") == "2"
    assert registry.version_with_label("m", "nightly") is None
    assert registry.version_with_label("missing", "stable") is None


def test_label_of_a_missing_version_is_refused() -> None:
    with pytest.raises(ModelError, match=r"^Model 'm': version_labels: There is no version '3' to be called 'canary'$"):
        Registry([source("1", canary="3"), source("2")])


def test_versions_with_contradicting_labels_are_refused() -> None:
    with pytest.raises(ModelError, match=r"^Model 'm': version_labels: Its versions disagree on 'stable'$"):
        Registry([source("1", stable="1"), source("2", stable="2")])


def test_labels_are_read_from_the_settings_of_the_model_folder(tmp_path: Path) -> None:
    model = tmp_path / "half"
    for version in ("1", "2"):
        shutil.copytree(DEMO_MODELS / "half_plus_two", model / version)
    (model / "model-settings.json").write_text(json.dumps({"version_labels": {"stable": "1"}}))
    assert Registry(models_in(tmp_path)).version_with_label("half", "stable") == "1"
