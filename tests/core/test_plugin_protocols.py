"""Protocols of plugins: their order, and names that exist twice."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.hooks import Plugin, Protocols, Ref
from app.core.plugins import PluginError, Registry, registry
from app.core.protocols.protocol import Endpoint, HttpProtocol
from app.core.settings.server import ServerSettings


class Ring(HttpProtocol):
    name = "ring"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        return ()


def main_port(_: ServerSettings) -> Protocols:
    return Protocols(http=(Ring(),))


def grpc_port(_: ServerSettings) -> Protocols:
    return Protocols(grpc_ports={"Ring gRPC": 8})


def plugin(name: str, function: Any) -> Plugin:
    return Plugin(
        api=1, name=name, summary="For a test.", protocols=Ref(f"{function.__module__}:{function.__qualname__}")
    )


def test_protocols_of_core_come_first() -> None:
    core = registry().loaded["core"]
    protocols = Registry([plugin("a", main_port), core]).protocols(ServerSettings(chariot_protocol="chariot-v2"))
    assert [protocol.name for protocol in protocols.http] == ["chariot-v2", "kserve-v2", "kserve-v1", "ring"]
    assert [protocol.name for protocol in protocols.grpc] == ["kserve-v2-grpc"]


@pytest.mark.parametrize(("function", "name"), [(main_port, "protocol ring"), (grpc_port, "gRPC port Ring gRPC")])
def test_protocol_or_port_with_the_name_of_another_plugin_is_rejected(function: Any, name: str) -> None:
    plugins = Registry([plugin("a", function), plugin("b", function)])
    with pytest.raises(PluginError, match=f"plugin b: the plugin a already has the {name}"):
        plugins.protocols(ServerSettings())
