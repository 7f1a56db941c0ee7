"""Build engines of models that a test loads with a function."""

from collections.abc import Callable, Sequence
from pathlib import Path

from app.core.engine.engine import Engine
from app.core.engine.events import InferenceObserver
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.engine.models.servable import Servable
from app.core.engine.scheduling.admission import QueueLimits
from app.core.settings.model import ModelSettings, ModelSource
from tasks.inference.limits import Limits
from tasks.task import TaskType
from tests.support.models.fake_models import FAKE_MODELS, load_fake_model

Load = Callable[[ModelSource], Servable]


def fake_sources(*names: str, **others: TaskType) -> list[ModelSource]:
    """Return version 7 of fake models, and of others by their task types."""
    types = {name: FAKE_MODELS[name][0] for name in names} | others
    return [
        ModelSource(name=name, version="7", folder=Path(name), settings=ModelSettings(task_type=task_type))
        for name, task_type in types.items()
    ]


def engine_of(
    sources: Sequence[ModelSource],
    load: Load = load_fake_model,
    *observers: InferenceObserver,
    loaded: Sequence[ModelSource] | None = None,
    discover: Callable[[], Sequence[ModelSource]] | None = None,
    limits: Limits | None = None,
    workers: int = 2,
    queue_limits: QueueLimits | None = None,
) -> Engine:
    """Return an engine of `sources`, where `loaded` are ready, by default all; later loads call `discover`."""
    registry = Registry(sources)
    for source in sources if loaded is None else loaded:
        registry.load(source, load)
    repository = Repository(registry, discover or (lambda: sources), load)
    engine = Engine(repository, limits or Limits(), workers, queue_limits or QueueLimits())
    engine.batched_observers.attach(observers)
    return engine
