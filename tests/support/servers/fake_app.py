"""The application over stand-in models, in this process."""

from pathlib import Path

from litestar import Litestar
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.observers.metrics import Metrics
from app.core.observers.request_log import RequestLog
from app.core.server.http.asgi import create_app
from app.core.settings.model import ModelSettings, ModelSource
from tasks.inference.limits import Limits
from tests.support.models.fake_models import FAKE_MODELS, load_fake_model
from tests.support.protocols import attach_plugins, main_port_protocols

MAX_REQUEST_BYTES = 2_000_000


def build_app(names: tuple[str, ...], protocol: str, *, limits: Limits | None = None, loaded: bool = True) -> Litestar:
    """Return the application over the stand-ins called `names`."""
    sources = [
        ModelSource(name=name, version="1", folder=Path(name), settings=ModelSettings(task_type=FAKE_MODELS[name][0]))
        for name in names
    ]
    registry = Registry(sources)
    if loaded:
        for source in sources:
            registry.load(source, load_fake_model)
    metrics = CollectorRegistry()
    repository = Repository(registry, lambda: sources, load_fake_model)
    limits = limits or Limits(max_inputs=64, max_request_bytes=MAX_REQUEST_BYTES)
    observer = Metrics(metrics, registry.known_name)
    engine = Engine(repository, [RequestLog(), observer], limits, workers=2)
    return create_app(attach_plugins(engine), main_port_protocols(protocol), metrics, MAX_REQUEST_BYTES)
