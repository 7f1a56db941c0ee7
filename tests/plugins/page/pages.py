"""An app with a web page whose clock the test sets."""

from pathlib import Path

from litestar import Litestar

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.settings.model import ModelSettings, ModelSource
from app.plugins.page.page import WebPage
from app.plugins.page.trends import Trends
from tasks.inference.limits import Limits
from tests.support.models.fake_models import FAKE_MODELS, load_fake_model
from tests.support.servers.plugin_apps import app_with_parts

NAMES = ("classifier", "detector")


class Clock:
    """Return a time that only the test changes."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def engine_of(trends: Trends) -> Engine:
    sources = [
        ModelSource(name=name, version="1", folder=Path(name), settings=ModelSettings(task_type=FAKE_MODELS[name][0]))
        for name in NAMES
    ]
    registry = Registry(sources)
    registry.load(sources[0], load_fake_model)
    registry.load(sources[1], load_fake_model)
    return Engine(
        Repository(registry, lambda: sources, load_fake_model), [], Limits(), workers=2, batched_observers=[trends]
    )


def app_of(engine: Engine, page: WebPage | None) -> Litestar:
    return app_with_parts(engine) if page is None else app_with_parts(engine, page.parts)
