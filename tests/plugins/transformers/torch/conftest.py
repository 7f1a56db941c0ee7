"""Create each tiny model once."""

from functools import cache
from pathlib import Path

import pytest

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSettings, ModelSource
from app.plugins.transformers.runtimes import TRANSFORMERS
from tests.plugins.transformers.torch.asking import FolderOf, Served
from tests.support.models import tiny_language, tiny_readers, tiny_vision


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> FolderOf:
    """Return a function that creates a tiny model by its name in `tests.support` and returns its folder."""
    root = tmp_path_factory.mktemp("tiny")

    @cache
    def create(name: str) -> Path:
        modules = (tiny_vision, tiny_language, tiny_readers)
        (maker,) = {getattr(module, name) for module in modules if hasattr(module, name)}
        return maker(root / name)

    return create


@pytest.fixture(scope="session")
def served(folder_of: FolderOf) -> Served:
    """Return a function that loads a tiny model by name, optionally with a declared layout."""

    @cache
    def load(name: str, layout: str | None = None) -> Servable:
        settings = ModelSettings(layout=layout)
        return TRANSFORMERS.load(ModelSource(name=name, version="1", folder=folder_of(name), settings=settings))

    return load
