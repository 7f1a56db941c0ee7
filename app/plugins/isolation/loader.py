"""Load models in processes of their own, if their settings or the operator say so."""

from collections.abc import Callable

from app.core.engine.models.servable import Servable
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.plugins.isolation.settings import IsolationOptions, IsolationSettings
from metadata.model import ModelMetadata

# The methods import late: few models are isolated, and the server starts faster.


class SubprocessLoader:
    """Loads isolated models."""

    elsewhere = True

    def accepts(self, source: ModelSource, /) -> bool:
        """Return whether the model is isolated.

        Raise ModelError if the settings limit the memory of a model that is not.
        """
        settings = source.settings.of(IsolationSettings)
        isolate = settings.isolate or source.of(IsolationOptions).isolate
        if settings.memory_limit_bytes is not None and not isolate:
            raise ModelError(f'{source.folder / SETTINGS_FILE}: "memory_limit_bytes" needs "isolate": true')
        return isolate

    def inspect(self, source: ModelSource, inspect: Callable[[ModelSource], ModelMetadata], /) -> ModelMetadata:
        from app.plugins.isolation.process import run_in_process

        return run_in_process(source, inspect)

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable], /) -> Servable:
        from app.plugins.isolation.supervisor import load_in_subprocess

        return load_in_subprocess(source, load)


LOADERS = (SubprocessLoader(),)
