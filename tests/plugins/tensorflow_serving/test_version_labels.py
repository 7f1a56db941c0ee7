"""Labels for versions of models."""

from pathlib import Path

import pytest

from app.core.assembly.service import Service
from app.core.engine.models.registry import Registry
from app.core.plugins import registry
from app.core.settings.model import ModelError, ModelSource
from app.plugins.tensorflow_serving.version_labels import version_with_label
from tests.support.servers.settings import settings_of_main_port


def source(version: str, **labels: str) -> ModelSource:
    settings = registry().model_settings(version_labels=labels)
    return ModelSource(name="m", version=version, folder=Path("m"), settings=settings)


def test_label_maps_to_its_version() -> None:
    versions = Registry([source("1", stable="1", canary="2"), source("2", stable="1")]).versions("m")
    assert [version_with_label(versions, label) for label in ("stable", "canary", "nightly")] == ["1", "2", None]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([source("1", canary="3"), source("2")], "There is no version '3' to be called 'canary'"),
        ([source("1", stable="1"), source("2", stable="2")], "Its versions disagree on 'stable'"),
    ],
)
def test_server_with_wrong_labels_does_not_start(sources: list[ModelSource], message: str) -> None:
    with pytest.raises(ModelError, match=f"^Model 'm': version_labels: {message}"):
        Service(settings_of_main_port(), lambda: sources)
