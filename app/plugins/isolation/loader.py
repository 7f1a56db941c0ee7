"""Load models in processes of their own, if their settings or the operator say so."""

import sys
from collections.abc import Callable

from app.core.engine.models.servable import Servable
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.plugins.isolation.settings import IsolationOptions, IsolationSettings
from metadata.model import ModelMetadata


class SubprocessLoader:
    """Loads isolated models. Its methods import late: few models are isolated, and the server starts faster."""

    elsewhere = True

    def accepts(self, source: ModelSource, /) -> bool:
        """Return whether the model is isolated.

        Raise ModelError if this system has no isolation, or the settings limit the memory of a model without it.
        """
        settings, path = source.settings.of(IsolationSettings), source.folder / SETTINGS_FILE
        isolate = settings.isolate or source.of(IsolationOptions).isolate
        if isolate and sys.platform != "linux":
            raise ModelError(f'{path}: "isolate" needs Linux')
        if settings.memory_limit_bytes is not None and not isolate:
            raise ModelError(f'{path}: "memory_limit_bytes" needs "isolate": true')
        return isolate

    def inspect(self, source: ModelSource, inspect: Callable[[ModelSource], ModelMetadata], /) -> ModelMetadata:
        from app.plugins.isolation.process import ModelProcess

        process = ModelProcess(source, inspect)
        try:
            return process.outcome()
        finally:
            process.close("its job was done")

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable], /) -> Servable:
        from app.plugins.isolation.supervisor import ProcessRunner

        runner = ProcessRunner(source, load)
        return runner.binding.servable(runner)


LOADERS = (SubprocessLoader(),)
