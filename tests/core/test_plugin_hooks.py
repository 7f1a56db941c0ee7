"""What plugins offer through their hooks: the order of it, names that exist twice, and errors that name the plugin."""

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from app.core.engine.engine import Engine
from app.core.engine.provided import Provided
from app.core.engine.request_context import RequestContext
from app.core.hooks import API, Host, Page, Plugin, Protocols, Ref
from app.core.plugin_loading import GROUP, PluginError, find
from app.core.plugins import PluginRegistry, registry
from app.core.protocols.grpc_protocol import GrpcMethods, unary_handler
from app.core.protocols.protocol import Endpoint, HttpProtocol
from app.core.runtimes.onnxruntime.layouts.layout import Layout
from app.core.runtimes.runtime import ModuleRuntime
from app.core.settings.server import ServerSettings
from tasks.object_detection import Detections
from tasks.task import TaskType
from tests.support.servers.grpc_server import build_engine


async def echo(data: bytes, _: RequestContext) -> bytes:
    return data


class Ring(HttpProtocol):
    name = "ring"

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        return ()


class Tiles(Struct, frozen=True, kw_only=True):
    tile: int = 0


def main_port(_: ServerSettings) -> Protocols:
    return Protocols(http=(Ring(),))


def grpc_port(_: ServerSettings) -> Protocols:
    return Protocols(grpc_ports={"Ring gRPC": 8})


def orbit(_: Engine) -> Sequence[Endpoint]:
    return (Endpoint("/v2/orbit"),)


def provide(host: Host) -> None:
    host.provide(Tiles, Tiles(tile=1))


def main() -> None: ...


def ring(_: ServerSettings) -> Any:
    return Ring()


def find_early(host: Host) -> None:
    host.find(Tiles)


def fake_host() -> Any:
    provided = Provided()
    return SimpleNamespace(engine=SimpleNamespace(provided=provided), provide=provided.provide, find=provided.find)


RINGS = (Ring(),)
HANDLER = unary_handler("ring", echo)
METHODS = GrpcMethods(
    permissions={"ModelStatistics": "read"}, handlers=lambda _: {"ModelStatistics": HANDLER}, target_model=bytes.decode
)
LOW = (ModuleRuntime("low", 1, "tests.low", lambda _: False),)
HIGH = (ModuleRuntime("high", 9, "tests.high", lambda _: False),)
LAYOUTS = (Layout(("ring",), (TaskType.OBJECT_DETECTION,), "[b, 3]", lambda _: None),)
PUBLIC = {"Detections": Ref[Any]("tasks.object_detection:Detections")}


def ref(name: str) -> Ref[Any]:
    return Ref(f"{__name__}:{name}")


def plugin(name: str, **hooks: Any) -> Plugin:
    return Plugin(api=API, name=name, summary="For a test.", **hooks)


Use = Callable[[PluginRegistry], object]
"""Reads what the hooks name."""

TWICE: list[tuple[dict[str, Any], Use, str]] = [
    ({"public": PUBLIC}, lambda _: None, "public name Detections"),
    ({"parameters": (ref("Tiles"),)}, lambda plugins: plugins.parameters, "parameter tile"),
    ({"protocols": ref("main_port")}, lambda plugins: plugins.protocols(ServerSettings()), "protocol ring"),
    ({"protocols": ref("grpc_port")}, lambda plugins: plugins.protocols(ServerSettings()), "gRPC port Ring gRPC"),
    ({"runtimes": ref("LOW")}, lambda plugins: plugins.runtimes, "runtime low of priority 1"),
    ({"layouts": ref("LAYOUTS")}, lambda plugins: plugins.layouts, "layout ring"),
]


@pytest.mark.parametrize(("hooks", "use", "name"), TWICE)
def test_name_that_another_plugin_has_is_rejected(hooks: dict[str, Any], use: Use, name: str) -> None:
    with pytest.raises(PluginError, match=f"plugin b: the plugin a already has the {name}"):
        use(PluginRegistry([plugin("a", **hooks), plugin("b", **hooks)]))


def test_protocols_of_core_come_first() -> None:
    plugins = PluginRegistry([plugin("a", protocols=ref("main_port")), registry().loaded["core"]])
    protocols = plugins.protocols(ServerSettings(chariot_protocol="chariot-v2"))
    assert [protocol.name for protocol in protocols.http] == ["chariot-v2", "kserve-v1", "kserve-v2", "ring"]
    assert [protocol.name for protocol in protocols.grpc] == ["kserve-v2-grpc"]


def test_endpoints_and_methods_are_added_to_the_protocol_of_their_name() -> None:
    added = plugin("a", endpoints={"kserve-v2": ref("orbit")}, methods={"kserve-v2-grpc": ref("METHODS")})
    protocols = PluginRegistry([added, registry().loaded["core"]]).protocols(ServerSettings())
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


def test_runtimes_are_sorted_by_priority() -> None:
    plugins = PluginRegistry([plugin("a", runtimes=ref("LOW")), plugin("b", runtimes=ref("HIGH"))])
    assert [runtime.name for runtime in plugins.runtimes] == ["high", "low"]
    assert [runtime.name for runtime in registry().runtimes][:2] == ["python", "onnxruntime"]


def test_value_is_found_by_its_type_after_all_plugins_have_started() -> None:
    host = fake_host()
    assert PluginRegistry([plugin("a", start=ref("provide")), plugin("b", start=ref("provide"))]).start(host) == []
    assert host.find(Tiles) == (Tiles(tile=1), Tiles(tile=1))
    assert host.find(Ring) == ()
    with pytest.raises(
        RuntimeError, match=r"find\(Tiles\) in `start`: call it in `lifespan` or in a handler"
    ) as caught:
        PluginRegistry([plugin("a", start=ref("find_early"))]).start(host)
    assert caught.value.__notes__ == ["The plugin a could not start"]


def test_public_name_is_imported_from_its_module_unless_the_plugin_is_skipped() -> None:
    assert PluginRegistry([plugin("shapes", public=PUBLIC)]).public["Detections"].load() is Detections
    assert list(PluginRegistry([plugin("a", requires=("b",), public=PUBLIC)]).public) == []


def test_plugin_that_fails_is_named() -> None:
    with pytest.raises(PluginError, match="plugin a: its hook formats failed: ModuleNotFoundError"):
        assert PluginRegistry([plugin("a", formats=Ref[Any]("tasks.no_such:NAMES"))]).formats
    with pytest.raises(PluginError, match=r"plugin a: its hook layouts failed: AttributeError: .*MISSING"):
        assert PluginRegistry([plugin("a", layouts=ref("MISSING"))]).layouts


MISTAKES: list[tuple[dict[str, Any], Use, str]] = [
    (
        {"protocols": ref("main")},
        lambda plugins: plugins.protocols(ServerSettings()),
        r"failed: TypeError: main\(\) takes 0",
    ),
    ({"protocols": ref("ring")}, lambda plugins: plugins.protocols(ServerSettings()), "returned Ring, not .*Protocols"),
    ({"runtimes": ref("RINGS")}, lambda plugins: plugins.runtimes, "failed: AttributeError: 'Ring' .*'priority'"),
    ({"start": ref("main")}, lambda plugins: plugins.start(fake_host()), "failed: TypeError: main"),
    (
        {"endpoints": {"ring": ref("main")}, "protocols": ref("main_port")},
        lambda plugins: plugins.protocols(ServerSettings()).http[0].endpoints(build_engine(())),
        "failed: TypeError: main",
    ),
]


@pytest.mark.parametrize(("hooks", "use", "message"), MISTAKES)
def test_hook_with_a_wrong_signature_or_result_is_named(hooks: dict[str, Any], use: Use, message: str) -> None:
    with pytest.raises(PluginError, match=f"plugin a: its hook {next(iter(hooks))} {message}"):
        use(PluginRegistry([plugin("a", **hooks)]))


MINIMAL = Plugin(api=API, page=Page())


def test_name_summary_and_page_are_by_default_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("minimal", f"{__name__}:MINIMAL", GROUP)
    monkeypatch.setattr("app.core.plugin_loading.installed", lambda: {"minimal": entry})
    found = find(["minimal"])[-1]
    assert (found.name, found.summary, found.page) == (
        "minimal",
        __doc__,
        Page(folder=Path(__file__).with_name("static")),
    )
