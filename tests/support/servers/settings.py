"""Settings of a server in this process."""

from dataclasses import fields
from typing import Any

from app.core.plugins import registry
from app.core.settings.server import ServerSettings


def settings_of_main_port(**options: Any) -> ServerSettings:
    """Return settings with these options for a server that opens no port but the main one."""
    # The test client of Litestar sends the name `testserver.local`.
    return settings_of_all_ports(enabled=False, **{"allowed_hosts": "testserver.local", **options})


def settings_of_all_ports(*, enabled: bool = True, **options: Any) -> ServerSettings:
    """Return settings with these options for a server that opens all ports of its plugins, if enabled."""
    known = {field.name for field in fields(registry().settings)} & {"grpc", "tensorflow_serving"}
    return registry().settings(**dict.fromkeys(known, enabled), **options)
