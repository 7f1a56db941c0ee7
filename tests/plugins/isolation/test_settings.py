"""Settings and options that this plugin adds to those of core."""

from pathlib import Path

import pytest

from app.core.assembly.models import find_models
from app.core.plugins import registry
from app.core.settings.model import ModelError, ModelSettings, read_settings
from app.core.settings.server import DEMO_MODELS, ModelOptions
from app.plugins.isolation.settings import IsolationOptions, IsolationSettings


def read(folder: Path, content: str) -> ModelSettings:
    (folder / "model-settings.json").write_text(content)
    return read_settings(folder)


def test_option_reaches_the_models_and_has_a_default_without_the_plugin() -> None:
    (source,) = find_models(registry().model_options(model=DEMO_MODELS / "detector", isolate=True))
    assert source.of(IsolationOptions).isolate
    (source,) = find_models(ModelOptions(model=DEMO_MODELS / "detector"))
    assert source.of(IsolationOptions) == IsolationOptions()
    assert ModelSettings().of(IsolationSettings) == IsolationSettings()


def test_settings_are_fields_at_the_top_level(tmp_path: Path) -> None:
    settings = read(tmp_path, '{"isolate": true, "labels": ["a"]}')
    assert settings.of(IsolationSettings) == IsolationSettings(isolate=True)
    assert settings.labels == ("a",)
    with pytest.raises(ModelError, match="memory_limit_bytes: Expected"):
        read(tmp_path, '{"memory_limit_bytes": 1}')
