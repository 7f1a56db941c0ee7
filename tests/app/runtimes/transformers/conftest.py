"""Each tiny model, made once."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from app.engine.servable import Servable
from app.runtimes.transformers import TransformersRuntime
from app.settings.model import ModelSettings, ModelSource
from tests.support import tiny_language, tiny_vision


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a model of `tiny_vision` or `tiny_language`."""
    root = tmp_path_factory.mktemp("tiny")

    @cache
    def made(name: str) -> Path:
        maker = getattr(tiny_vision, name, None) or getattr(tiny_language, name)
        return maker(root / name)

    return made


@pytest.fixture(scope="session")
def served(folder_of: Callable[[str], Path]) -> Callable[..., Servable]:
    """Such a model, served; beside its name, the layout that its owner declares."""

    @cache
    def loaded(name: str, layout: str | None = None) -> Servable:
        settings = ModelSettings(layout=layout)
        return TransformersRuntime().load(
            ModelSource(name=name, version="1", folder=folder_of(name), settings=settings)
        )

    return loaded
