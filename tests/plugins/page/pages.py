"""An app with a web page."""

from pathlib import Path
from typing import Any

from litestar import Litestar

from app.core.settings.model import ModelSettings, ModelSource
from tasks.inference.limits import Limits
from tests.support.models.engines import engine_of
from tests.support.models.fake_models import FAKE_MODELS
from tests.support.servers.apps import app_with_parts, page_of

NAMES = ("classifier", "detector")


def model_source(name: str, version: str = "1", **settings: Any) -> ModelSource:
    model_settings = ModelSettings(task_type=FAKE_MODELS[name][0], **settings)
    return ModelSource(name=name, version=version, folder=Path(name), settings=model_settings)


def app_of_page(*models: str, limits: Limits | None = None, **options: Any) -> Litestar:
    engine = engine_of(list(map(model_source, models)), limits=limits)
    return app_with_parts(engine, page_of(engine, **options))
