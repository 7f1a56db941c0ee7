"""Protocols of plugins, and what they add to those of others: their order, and names that exist twice."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.hooks import Plugin, Protocols, Ref
from app.core.plugin_loading import PluginError
from app.core.plugins import Registry, registry
from app.core.protocols.grpc_protocol import GrpcMethods, unary_handler
from app.core.protocols.protocol import Endpoint, HttpProtocol
from app.core.settings.server import ServerSettings
from tests.support.servers.grpc_server import build_engine


async def echo(data: bytes, _: RequestContext) -> bytes:
    return data


HANDLER = unary_handler("ring", echo)


class Ring(HttpProtocol):
    name = "ring"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        return ()


def main_port(_: ServerSettings) -> Protocols:
    return Protocols(http=(Ring(),))


def grpc_port(_: ServerSettings) -> Protocols:
    return Protocols(grpc_ports={"Ring gRPC": 8})


def orbit(_: Engine) -> Sequence[Endpoint]:
    return (Endpoint("/v2/orbit"),)


METHODS = GrpcMethods(
    permissions={"ModelStatistics": "read"}, handlers=lambda _: {"ModelStatistics": HANDLER}, target_model=bytes.decode
)


def plugin(name: str, function: Any) -> Plugin:
    return Plugin(
        api=1, name=name, summary="For a test.", protocols=Ref(f"{function.__module__}:{function.__qualname__}")
    )


def test_protocols_of_core_come_first() -> None:
    core = registry().loaded["core"]
    protocols = Registry([plugin("a", main_port), core]).protocols(ServerSettings(chariot_protocol="chariot-v2"))
    assert [protocol.name for protocol in protocols.http] == ["chariot-v2", "kserve-v2", "ring"]
    assert [protocol.name for protocol in protocols.grpc] == ["kserve-v2-grpc"]


@pytest.mark.parametrize(("function", "name"), [(main_port, "protocol ring"), (grpc_port, "gRPC port Ring gRPC")])
def test_protocol_or_port_with_the_name_of_another_plugin_is_rejected(function: Any, name: str) -> None:
    plugins = Registry([plugin("a", function), plugin("b", function)])
    with pytest.raises(PluginError, match=f"plugin b: the plugin a already has the {name}"):
        plugins.protocols(ServerSettings())


def test_endpoints_and_methods_are_added_to_the_protocol_of_their_name() -> None:
    added = Plugin(
        api=1,
        name="a",
        summary="For a test.",
        endpoints={"kserve-v2": Ref(f"{__name__}:orbit")},
        methods={"kserve-v2-grpc": Ref(f"{__name__}:METHODS")},
    )
    protocols = Registry([added, registry().loaded["core"]]).protocols(ServerSettings())
    engine = build_engine(())
    paths = {protocol.name: [endpoint.path for endpoint in protocol.endpoints(engine)] for protocol in protocols.http}
    assert [name for name in paths if "/v2/orbit" in paths[name]] == ["kserve-v2"]
    assert "/v2/health/live" in paths["kserve-v2"]
    (service,) = protocols.grpc
    assert (service.permissions["ModelStatistics"], service.permissions["ModelInfer"]) == ("read", "infer")
    handlers = service.handlers(engine, asyncio.Event())
    assert handlers["ModelStatistics"] is HANDLER
    assert "ModelInfer" in handlers
    assert service.target_model(b"half") == "half"


ITEMS = ("ring", "orbit")


def test_extensions_are_listed_by_their_point() -> None:
    point = {"conformance.protocols": Ref[Sequence[Any]](f"{__name__}:ITEMS")}
    plugins = Registry([Plugin(api=1, name="a", summary="For a test.", extends=point), plugin("b", main_port)])
    assert plugins.extensions("conformance.protocols") == ["ring", "orbit"]
    assert plugins.extensions("evaluation.clients") == []
