"""``charioteer serve``."""

import gc
import logging
import os
import sys
import threading
from collections.abc import Mapping

from rich.markup import escape

from app.cli.terminal import Announcing
from app.settings.server import ModelOptions, ServerSettings

__all__ = ("serve",)


def serve(options: ModelOptions = ModelOptions(), settings: ServerSettings = ServerSettings()) -> None:  # noqa: B008
    """Serve models over HTTP and gRPC until told to stop.

    Args:
        options: which models.
        settings: how.
    """
    from app.server.access.exposure import check_exposure, warn_of_clear_text

    check_exposure(settings)
    # Nothing of what is made until the models are there is garbage: `freeze_garbage` begins to look for it.
    gc.disable()
    from app.assembly.models import sources
    from app.assembly.service import Service
    from app.server.listening import ListenError
    from app.server.log_output import configure_logging
    from app.server.process import run
    from app.server.tuning import tune_process

    configure_logging(settings.log_format)
    warn_of_clear_text(settings)
    tune_process()
    service = Service(settings, lambda: sources(options))

    def announce(address: str, others: Mapping[str, str]) -> None:
        service.announced(others)
        console = Announcing()
        console.print(f"Charioteer answers at [bold]{address}[/bold] ({settings.chariot_protocol})")
        for name, other in others.items():
            console.print(f"  {name:<27} {other}")
        for each in service.registry.registrations:
            if each.servable is None:
                reason = escape(each.detail or each.reason)
                console.print(f"  [red]not served[/red] {escape(each.source.name)}: {reason}")
            else:
                task_type = each.servable.description.task_type
                console.print(f"  {task_type:<27} {address}/v2/models/m-{escape(each.chariot_id)}/infer")

    try:
        usable = run(
            service.app,
            settings,
            service.loading,
            service.grpc,
            service.beside,
            service.transport,
            announce,
            service.ending,
        )
    except ListenError as error:
        sys.exit(f"charioteer: {error}")
    if service.engine.busy or service.loading.busy or (usable and _threads_left()):
        # A worker that outlived the drain, or a thread of a model's own, would keep the interpreter from ever ending.
        logging.shutdown()
        os._exit(0)
    if not usable:
        reasons = "; ".join(each.detail or each.reason for each in service.registry.registrations)
        sys.exit(f"charioteer: no model could be loaded: {reasons}")


def _threads_left() -> bool:
    """Whether there are threads for which the interpreter would wait at its end."""
    here = threading.main_thread()
    return any(each is not here and not each.daemon for each in threading.enumerate())
