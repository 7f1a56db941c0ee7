"""The protocols of core and of all plugins."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from app.core.engine.engine import Engine
from app.core.hooks import Parts, Protocols
from app.core.plugins import registry
from app.core.protocols import CHARIOT_PROTOCOLS
from app.core.protocols.grpc_protocol import GrpcProtocol
from app.core.protocols.protocol import HttpListener, HttpProtocol
from tests.support.servers.settings import settings_of_all_ports


def _enabled(chariot_protocol: str) -> Protocols:
    return registry().protocols(settings_of_all_ports(chariot_protocol=chariot_protocol))


PROTOCOLS: Sequence[HttpProtocol] = list(
    {protocol.name: protocol for name in CHARIOT_PROTOCOLS for protocol in _enabled(name).http}.values()
)
"""The protocols of the main port, with both of Chariot's."""

LISTENERS: Sequence[HttpListener] = [port.protocol for port in _enabled("chariot-v2-kserve").ports]
"""The protocols with a port of their own."""

GRPC_PROTOCOLS: Sequence[GrpcProtocol] = _enabled("chariot-v2-kserve").grpc
"""The gRPC services, which share all gRPC ports."""


def main_port_protocols(chariot_protocol: str) -> Sequence[HttpProtocol]:
    """Return the protocols of the main port; of Chariot's, which share paths, only `chariot_protocol`."""
    return [
        protocol
        for protocol in PROTOCOLS
        if protocol.name == chariot_protocol or protocol.name not in CHARIOT_PROTOCOLS
    ]


def attach_plugins(engine: Engine) -> Engine:
    """Start the plugins whose endpoints and methods find what they provide, and return the engine."""
    host: Any = SimpleNamespace(engine=engine, provide=engine.provided.provide)
    for name in ("triton", "openai"):
        plugin = registry().loaded.get(name)
        if plugin is not None and plugin.start is not None:
            engine.attach(plugin.start.load()(host) or Parts())
    return engine
