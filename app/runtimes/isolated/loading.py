"""A servable whose task runs here, and whose model runs in a process of its own."""

import atexit
import os
import time
import weakref
from collections.abc import Callable

from app.engine.servable import BoundServable, Servable
from app.runtimes.isolated import Lost
from app.runtimes.isolated.model import IsolatedModel, StreamingIsolatedModel, detail_of
from app.runtimes.isolated.supervisor import Supervisor
from app.settings.model import SETTINGS_FILE, ModelError, ModelSource

__all__ = ("bind",)

_SECONDS_AT_EXIT = 6.0

_open: "weakref.WeakSet[Supervisor]" = weakref.WeakSet()


def bind(source: ModelSource, job: Callable[[ModelSource], object], lost: Lost | None) -> Servable:
    """Start a process that loads the model, and wait until it has.

    The process ends when the servable is dropped, behind the last request that it answers, and when the server ends.

    Raises:
        ModelError: with a sentence for the model's owner.
    """
    _check_system(source)
    supervisor = Supervisor(source, job, lost)
    _open.add(supervisor)
    binding = supervisor.binding()
    model = (StreamingIsolatedModel if binding.streams else IsolatedModel)(supervisor)
    # It lives as long as its registration, or a request that it still answers.
    weakref.finalize(model, supervisor.close).atexit = False
    detail = detail_of(supervisor) if binding.shrinks else None
    return BoundServable(binding.task, model, binding.description, binding.defaults, detail)


def _check_system(source: ModelSource) -> None:
    """Refuse what no call could be made with, rather than every call."""
    setting = f'{source.folder / SETTINGS_FILE}: "isolate"'
    if not hasattr(os, "memfd_create"):
        raise ModelError(f"{setting} needs Linux")
    try:
        os.close(os.memfd_create("charioteer-attempt"))
    except OSError as error:
        raise ModelError(
            f"{setting} needs memory by memfd_create, which the system refuses: {error.strerror}"
        ) from None


@atexit.register
def _close_all() -> None:
    """Let the models' processes close what they have to; whatever is left of them ends with this one."""
    supervisors = list(_open)
    for each in supervisors:
        each.close()
    until = time.monotonic() + _SECONDS_AT_EXIT
    for each in supervisors:
        each.thread.join(max(0.0, until - time.monotonic()))
