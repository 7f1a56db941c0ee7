"""Build a servable whose task runs in the server and whose model runs in its own process."""

import atexit
import os
import time
import weakref
from collections.abc import Callable

from app.engine.models.servable import Servable
from app.runtimes.subprocess.remote_model import StreamingSubprocessModel, SubprocessModel, downscale_of
from app.runtimes.subprocess.supervisor import OnProcessLost, Supervisor
from app.settings.model import SETTINGS_FILE, ModelError, ModelSource

_SECONDS_AT_EXIT = 6.0

_open: "weakref.WeakSet[Supervisor]" = weakref.WeakSet()


def load_in_subprocess(
    source: ModelSource, load: Callable[[ModelSource], Servable], on_lost: OnProcessLost | None = None
) -> Servable:
    """Load the model at `source` with `load` in a separate process, and restart that process whenever it ends.

    The process ends after the servable is dropped and its last request has finished, or when the server ends.

    Args:
        source: the model.
        load: a module-level function, which the process imports.
        on_lost: called for each process that ends unexpectedly or is killed.

    Raises:
        ModelError: if `load` raises, or the process ends.
    """
    _check_system(source)
    supervisor = Supervisor(source, load, on_lost)
    _open.add(supervisor)
    binding = supervisor.binding()
    model = (StreamingSubprocessModel if binding.streams else SubprocessModel)(supervisor, binding.methods)
    # The registration and the requests in flight keep the model alive.
    weakref.finalize(model, supervisor.close).atexit = False
    downscale = downscale_of(supervisor) if binding.downscales else None
    return Servable(binding.task, model, binding.description, binding.defaults, downscale)


def _check_system(source: ModelSource) -> None:
    """Reject a system without `memfd_create` at load time, because every call would fail."""
    setting = f'{source.folder / SETTINGS_FILE}: "isolate"'
    if not hasattr(os, "memfd_create"):
        raise ModelError(f"{setting} needs Linux")
    try:
        os.close(os.memfd_create("charioteer-probe"))
    except OSError as error:
        raise ModelError(f"{setting} needs memfd_create, but the system call fails: {error.strerror}") from None


@atexit.register
def _close_all() -> None:
    """Stop all model processes gracefully; the system kills those that remain when this process ends."""
    supervisors = list(_open)
    for supervisor in supervisors:
        supervisor.close()
    deadline = time.monotonic() + _SECONDS_AT_EXIT
    for supervisor in supervisors:
        supervisor.thread.join(max(0.0, deadline - time.monotonic()))
