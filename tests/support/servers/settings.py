"""Settings of a server in this process."""

from dataclasses import fields
from typing import Any

from app.core.plugins import registry
from app.core.settings.server import ServerSettings

_SWITCHES = ("grpc", "tensorflow_serving")


def settings_of_main_port(**options: Any) -> ServerSettings:
    """Return settings with these options for a server that opens no port but the main one."""
    known = {field.name for field in fields(registry().settings_class)}
    # The test client of Litestar sends the name `testserver.local`.
    options = {"allowed_hosts": "testserver.local", **options}
    return registry().settings(**{name: False for name in _SWITCHES if name in known}, **options)
