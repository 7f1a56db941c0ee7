"""Settings of a server in this process."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from app.core.plugins import registry
from app.core.settings.server import ServerSettings

_SWITCHES = ("grpc", "tensorflow_serving")


def settings_of_main_port(**options: Any) -> ServerSettings:
    """Return settings with these options for a server that opens no port but the main one."""
    # The test client of Litestar sends the name `testserver.local`.
    return _settings(enabled=False, options={"allowed_hosts": "testserver.local", **options})


def settings_of_all_ports(**options: Any) -> ServerSettings:
    """Return settings with these options for a server that opens all ports of its plugins."""
    return _settings(enabled=True, options=options)


def _settings(*, enabled: bool, options: Mapping[str, Any]) -> ServerSettings:
    known = {field.name for field in fields(registry().settings_class)}
    return registry().settings(**{**{name: enabled for name in _SWITCHES if name in known}, **options})
