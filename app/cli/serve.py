"""``charioteer serve``."""

import gc
import logging
import os
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape

from app.settings.server import ModelOptions, ServerSettings

__all__ = ("serve",)


def serve(options: ModelOptions = ModelOptions(), settings: ServerSettings = ServerSettings()) -> None:  # noqa: B008
    """Serve models over HTTP and gRPC until told to stop.

    Args:
        options: which models.
        settings: how.
    """
    # Nothing of what is made until the models are there is garbage: `freeze_garbage` begins to look for it.
    gc.disable()
    from app.assembly.models import sources
    from app.assembly.service import Service
    from app.server.listening import ListenError
    from app.server.log_output import configure_logging
    from app.server.process import run
    from app.server.tuning import tune_process

    configure_logging(settings.log_format)
    tune_process()
    service = Service(settings, lambda: sources(options))

    def announce(address: str, others: Mapping[str, str]) -> None:
        service.announced(others)
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(f"Charioteer answers at [bold]{address}[/bold] ({settings.chariot_protocol})")
        for name, other in others.items():
            console.print(f"  {name:<27} {other}")
        for each in service.registry.registrations:
            if each.servable is None:
                console.print(f"  [red]not served[/red] {escape(each.source.name)}: {escape(each.reason)}")
            else:
                task_type = each.servable.description.task_type
                console.print(f"  {task_type:<27} {address}/v2/models/m-{escape(each.chariot_id)}/infer")

    try:
        usable = run(service.app, settings, service.loading, service.grpc, service.beside, announce, service.ending)
    except ListenError as error:
        sys.exit(f"charioteer: {error}")
    if service.engine.busy or service.loading.busy:
        # A worker that outlived the drain would keep the interpreter from ever ending.
        logging.shutdown()
        os._exit(0)
    if not usable:
        reasons = "; ".join(each.reason for each in service.registry.registrations)
        sys.exit(f"charioteer: no model could be loaded: {reasons}")
