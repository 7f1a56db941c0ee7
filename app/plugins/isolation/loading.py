"""Build a servable whose task runs in the server and whose model runs in its own process, to which calls are sent."""

import atexit
import os
import time
import weakref
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from app.core.engine.models.servable import Servable
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.plugins.isolation.messages import CallKind
from app.plugins.isolation.supervisor import OnProcessLost, Supervisor
from tasks.inference.error import InferenceError
from tasks.task import TextChunk

_SECONDS_AT_EXIT = 6.0
_MAX_CACHED_SIZES = 1024

_open: "weakref.WeakSet[Supervisor]" = weakref.WeakSet()


def load_in_subprocess(
    source: ModelSource, load: Callable[[ModelSource], Servable], on_lost: OnProcessLost | None = None
) -> Servable:
    """Load the model at `source` with `load` in a separate process, and restart that process whenever it ends.

    The process ends after the servable is dropped and its last request has finished, or when the server ends. Raise
    ModelError if `load` raises, or the process ends.

    Args:
        source: the model.
        load: a module-level function, which the process imports.
        on_lost: called for each process that ends unexpectedly or is killed.
    """
    _check_system(source)
    supervisor = Supervisor(source, load, on_lost)
    _open.add(supervisor)
    binding = supervisor.binding()
    model = (StreamingSubprocessModel if binding.streams else SubprocessModel)(supervisor, binding.methods)
    # The registration and the requests in flight keep the model alive.
    weakref.finalize(model, supervisor.close).atexit = False

    @lru_cache(_MAX_CACHED_SIZES)
    def downscale(width: int, height: int) -> float:
        return supervisor.call("downscale", (width, height))

    return Servable(
        binding.task, model, binding.description, binding.defaults, downscale if binding.downscales else None
    )


def _check_system(source: ModelSource) -> None:
    """Reject a system without `memfd_create` at load time, because every call would fail."""
    setting = f'{source.folder / SETTINGS_FILE}: "isolate"'
    if not hasattr(os, "memfd_create"):
        raise ModelError(f"{setting} needs Linux")
    try:
        os.close(os.memfd_create("charioteer-probe"))
    except OSError as error:
        raise ModelError(f"{setting} needs memfd_create, but the system call fails: {error.strerror}") from None


class SubprocessModel:
    """A model of any task. Its process ends after this object is dropped.

    Attributes:
        explain: the method of a `SelfExplainingModel`; None if the model has none.
    """

    def __init__(self, supervisor: Supervisor, methods: Collection[str] = ()) -> None:
        self._supervisor = supervisor
        self.explain = self._method("explain") if "explain" in methods else None

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

    def _method(self, kind: CallKind) -> Callable[..., Sequence[Any]]:
        supervisor = self._supervisor
        return lambda *arguments: supervisor.call(kind, arguments)


class StreamingSubprocessModel(SubprocessModel):
    """A model that streams its answers, one chunk at a time on demand."""

    def stream(self, inputs: Sequence[Any], /) -> Generator[TextChunk]:
        """Yield the chunks of every answer, in the order of the inputs."""
        with self._supervisor.channel(counted=False) as channel:
            try:
                chunk = channel.call("stream", list(inputs))
                while chunk is not None:
                    yield chunk
                    chunk = channel.call("next")
            except GeneratorExit:
                # The reader has left, so an error has no recipient.
                with suppress(InferenceError, EOFError, OSError):
                    channel.call("close")
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
