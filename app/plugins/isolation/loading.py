"""Build a servable whose task runs in the server and whose model runs in its own process, to which calls are sent."""

import atexit
import sys
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from app.core.engine.models.servable import Servable
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.plugins.isolation.supervisor import Supervisor
from tasks.inference.error import InferenceError
from tasks.task import TextChunk

_SECONDS_AT_EXIT = 6.0
_MAX_CACHED_SIZES = 1024

_open: "weakref.WeakSet[Supervisor]" = weakref.WeakSet()


def load_in_subprocess(source: ModelSource, load: Callable[[ModelSource], Servable]) -> Servable:
    """Load the model at `source` with `load` in a separate process, and restart that process whenever it ends.

    The process imports `load`, a module-level function. It ends after the servable is dropped and its last request has
    finished, or when the server ends. Raise ModelError if `load` raises, or the process ends.
    """
    if sys.platform != "linux":
        raise ModelError(f'{source.folder / SETTINGS_FILE}: "isolate" needs Linux')
    supervisor = Supervisor(source, load)
    _open.add(supervisor)
    binding = supervisor.binding()
    model = (StreamingSubprocessModel if binding.streams else SubprocessModel)(supervisor, binding.explains)
    # The registration and the requests in flight keep the model alive.
    weakref.finalize(model, supervisor.close).atexit = False

    @lru_cache(_MAX_CACHED_SIZES)
    def downscale(width: int, height: int) -> float:
        return supervisor.call("downscale", (width, height))

    return Servable(
        binding.task, model, binding.description, binding.defaults, downscale if binding.downscales else None
    )


class SubprocessModel:
    """A model of any task. Its process ends after this object is dropped.

    Attributes:
        explain: the method of a `SelfExplainingModel`; None if the model has none.
    """

    def __init__(self, supervisor: Supervisor, explains: bool = False) -> None:
        self._supervisor = supervisor

        def explain(*arguments: Any) -> Any:
            return supervisor.call("explain", arguments)

        self.explain = explain if explains else None

    @property
    def unavailable_reason(self) -> str:
        """Return why the model cannot answer now, or an empty string."""
        return self._supervisor.unavailable_reason

    @property
    def resident_bytes(self) -> int | None:
        """Return the resident memory of the process in bytes, None while none runs."""
        return self._supervisor.resident_bytes

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        return self._supervisor.call("predict", list(inputs))


class StreamingSubprocessModel(SubprocessModel):
    """A model that streams its answers, one chunk at a time on demand."""

    def stream(self, inputs: Sequence[Any], /) -> Generator[TextChunk]:
        """Yield the chunks of every answer, in the order of the inputs."""
        with self._supervisor.exchange() as send:
            try:
                chunk = send("stream", list(inputs))
                while chunk is not None:
                    yield chunk
                    chunk = send("next", None)
            except GeneratorExit:
                # The reader has left, so an error has no recipient.
                with suppress(InferenceError):
                    send("close", None)
                raise


@atexit.register
def _close_all() -> None:
    """Stop all model processes gracefully; the system kills those that remain when this process ends."""
    supervisors = list(_open)
    for supervisor in supervisors:
        supervisor.close()
    deadline = time.monotonic() + _SECONDS_AT_EXIT
    for supervisor in supervisors:
        supervisor.thread.join(max(0.0, deadline - time.monotonic()))
