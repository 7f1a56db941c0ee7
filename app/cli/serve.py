"""``charioteer serve``."""

import faulthandler
import gc
import logging
import os
import sys
import threading
from collections.abc import Mapping

from rich.markup import escape

from app.cli.terminal import AnnouncementConsole
from app.settings.server import ModelOptions, ServerSettings

__all__ = ("serve",)


def serve(options: ModelOptions = ModelOptions(), settings: ServerSettings = ServerSettings()) -> None:  # noqa: B008
    """Serve models over HTTP and gRPC until stopped.

    Args:
        options: Which models.
        settings: Server settings.
    """
    from app.server.auth.bind_policy import check_bind_policy, warn_about_clear_text

    check_bind_policy(settings)
    # Collect no garbage while models load. `freeze_garbage` freezes the loaded objects and turns the collector on.
    gc.disable()
    from app.assembly.models import find_models
    from app.assembly.service import Service
    from app.server.listen_socket import ListenError
    from app.server.log_output import configure_logging
    from app.server.process import run
    from app.server.process_setup import configure_process

    # Tune malloc first: threads that start earlier would have arenas of their own.
    configure_process()
    configure_logging(settings.log_format)
    faulthandler.enable(2)
    warn_about_clear_text(settings)
    service = Service(settings, lambda: find_models(options))

    def announce(address: str, addresses: Mapping[str, str]) -> None:
        service.set_ports(addresses)
        console = AnnouncementConsole()
        console.print(f"Charioteer answers at [bold]{address}[/bold] ({settings.chariot_protocol})")
        for name, listener_address in addresses.items():
            console.print(f"  {name:<27} {listener_address}")
        for registration in service.registry.registrations:
            if registration.servable is None:
                reason = escape(registration.detail or registration.reason)
                console.print(f"  [red]not served[/red] {escape(registration.source.name)}: {reason}")
            else:
                task_type = registration.servable.description.task_type
                console.print(f"  {task_type:<27} {address}/v2/models/m-{escape(registration.chariot_id)}/infer")

    try:
        has_models = run(
            service.guarded_app,
            settings,
            service.loading,
            service.grpc,
            service.secondary_listeners,
            service.transport,
            announce,
            service.shutdown_hooks,
        )
    except ListenError as error:
        sys.exit(f"charioteer: {error}")
    if service.engine.busy or service.loading.busy or (has_models and _threads_left()):
        # Exit at once: a worker that outlived the drain, or a model's thread, would keep the interpreter alive.
        logging.shutdown()
        os._exit(0)
    if not has_models:
        reasons = "; ".join(
            registration.detail or registration.reason for registration in service.registry.registrations
        )
        sys.exit(f"charioteer: no model could be loaded: {reasons}")


def _threads_left() -> bool:
    """Return whether threads are left for which the interpreter would wait at exit."""
    main_thread = threading.main_thread()
    return any(thread is not main_thread and not thread.daemon for thread in threading.enumerate())
