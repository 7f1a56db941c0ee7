"""An app with a web page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litestar import Litestar

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.settings.model import ModelSettings, ModelSource
from app.plugins.page.page import WebPage
from tasks.inference.limits import Limits
from tests.support.models.fake_models import FAKE_MODELS, load_fake_model
from tests.support.servers.apps import app_with_parts

NAMES = ("classifier", "detector")


def model_source(name: str, version: str = "1", **settings: Any) -> ModelSource:
    model_settings = ModelSettings(task_type=FAKE_MODELS[name][0], **settings)
    return ModelSource(name=name, version=version, folder=Path(name), settings=model_settings)


def repository_of(*sources: ModelSource, unloaded: Sequence[ModelSource] = ()) -> Repository:
    """Return a repository with `sources`, which are loaded, and `unloaded` on disk."""
    registry = Registry(sources)
    for source in sources:
        registry.load(source, load_fake_model)
    return Repository(registry, lambda: [*sources, *unloaded], load_fake_model)


def app_of(engine: Engine, page: WebPage | None) -> Litestar:
    return app_with_parts(engine) if page is None else app_with_parts(engine, page.parts)


def app_of_page(repository: Repository, limits: Limits | None = None, **options: Any) -> Litestar:
    engine = Engine(repository, limits or Limits(), workers=2)
    page = WebPage(engine, **options)
    return app_with_parts(engine, page.parts, protocol=options.get("chariot_protocol", "chariot-v2-kserve"))
