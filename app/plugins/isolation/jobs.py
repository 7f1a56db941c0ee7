"""What a model process does first."""

import gc
from collections.abc import Callable

from app.core.engine.models.servable import Servable
from app.core.server.process_setup import configure_process, freeze_garbage
from app.core.settings.model import ModelSource


def load_alone(load: Callable[[ModelSource], Servable], source: ModelSource) -> Servable:
    """Load the model with `load` in the process that was started for it."""
    gc.disable()
    configure_process()
    servable = load(source)
    freeze_garbage()
    return servable
