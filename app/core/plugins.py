"""What core and the loaded plugins add together: settings, commands, runtimes, protocols and more."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct, defstruct, structs

from app.core.hooks import (
    Command,
    ForeignFormat,
    Host,
    ModelLoader,
    Parts,
    Plugin,
    Protocols,
    Ref,
    Runtime,
    TaskSupport,
)
from app.core.plugin_loading import LoadedPlugins, PluginError, enabled, find

if TYPE_CHECKING:
    from app.core.api import GraphFileReader, GrpcProtocol, HttpProtocol, Layout, PythonLibrary
    from app.core.settings.server import ServerSettings

T = TypeVar("T")
ProtocolT = TypeVar("ProtocolT", bound="HttpProtocol | GrpcProtocol")
Field = tuple[str, Any, Any]
"""The name, type and default of a field."""

# The settings of core are named, not imported: this module is below all others of core, so that these can ask it.
_SERVER_SETTINGS = Ref[type[Any]]("app.core.settings.server:ServerSettings")
_MODEL_OPTIONS = Ref[type[Any]]("app.core.settings.server:ModelOptions")
_MODEL_SETTINGS = Ref[type[Any]]("app.core.settings.model:ModelSettings")
_WITH_ENDPOINTS = Ref[Any]("app.core.protocols.extension:with_endpoints")
_WITH_METHODS = Ref[Any]("app.core.protocols.extension:with_methods")
_ADD_PARAMETERS = Ref[Callable[[Iterable[type[Struct]]], None]]("tasks.inference.parameters:add_parameters")


class PluginRegistry(LoadedPlugins):
    """The loaded plugins, and what they add together.

    Properties that import what a hook names raise `PluginError` if a plugin raises, or if a name exists twice.
    """

    @cached_property
    def settings(self) -> type[Any]:
        """Return `ServerSettings` with the options of every plugin: all options of ``serve`` in one object."""
        return self._composed_options(_SERVER_SETTINGS.load(), "settings")

    @cached_property
    def model_options(self) -> type[Any]:
        """Return `ModelOptions` with the options of every plugin, for commands that load models."""
        return self._composed_options(_MODEL_OPTIONS.load(), "model_options")

    def _composed_options(self, base: type[T], hook: str) -> type[T]:
        parts = [part for plugin in self.loaded.values() for part in getattr(plugin, hook)]
        return dataclass(frozen=True, kw_only=True)(type(base.__name__, (*reversed(parts), base), {}))

    @cached_property
    def model_settings(self) -> type[Any]:
        """Return `ModelSettings` with the settings of every plugin for a model."""
        base = _MODEL_SETTINGS.load()
        # Settings name task types and parameters, so that these must exist before the first settings are read.
        _ = self.task_types, self.parameters
        self._owners |= {("model setting", name): "core" for name in base.__struct_fields__}
        added = self._fields("model setting", "model_settings", lambda plugin: plugin.model_settings.items())
        kinds: Any = {"frozen": True, "kw_only": True, "forbid_unknown_fields": True}
        return cast("Any", defstruct("ModelSettings", added, bases=(base,), module=__name__, **kinds))

    @cached_property
    def parameters(self) -> Sequence[Field]:
        """Return the parameters of inputs that plugins add. From now on, the inputs of all tasks have them."""
        added = self._fields("parameter", "parameters", lambda plugin: [("", ref) for ref in plugin.parameters])
        if added:
            _ADD_PARAMETERS.load()(ref.load() for plugin in self.loaded.values() for ref in plugin.parameters)
        return added

    @cached_property
    def commands(self) -> Mapping[str, Command]:
        """Return the commands by name."""
        return {command.name: command for plugin in self.loaded.values() for command in plugin.commands}

    @cached_property
    def layouts(self) -> "Sequence[Layout]":
        """Return the output layouts of ONNX models."""
        return self._imported("layouts", lambda layout: [("layout", name) for name in layout.names])

    @cached_property
    def graph_files(self) -> "Sequence[GraphFileReader]":
        """Return the readers of files of libraries beside ONNX graphs."""
        return self._imported("graph_files", lambda _: ())

    @cached_property
    def python_libraries(self) -> "Sequence[PythonLibrary]":
        """Return how the Python runtime uses objects of libraries."""
        return self._imported("python_libraries", lambda _: ())

    @cached_property
    def runtimes(self) -> "Sequence[Runtime]":
        """Return the runtimes, the one with the highest priority first."""
        found = self._imported("runtimes", lambda item: [("runtime", f"{item.name} of priority {item.priority}")])
        return sorted(found, key=lambda runtime: runtime.priority, reverse=True)

    @cached_property
    def task_types(self) -> "Sequence[TaskSupport]":
        """Return the task types of plugins."""
        return self._imported("task_types", lambda support: [("task", str(support.task_type))])

    @cached_property
    def loaders(self) -> "Sequence[ModelLoader]":
        """Return the loaders of models. The first that accepts a model loads it."""
        return self._imported("loaders", lambda _: ())

    @cached_property
    def formats(self) -> "Sequence[ForeignFormat]":
        """Return the formats of other servers and frameworks."""
        return self._imported("formats", lambda item: [("file", name) for name in item.files])

    def _fields(
        self, kind: str, hook: str, types: "Callable[[Plugin], Iterable[tuple[str, Ref[type[Struct]]]]]"
    ) -> Sequence[Field]:
        """Return the name, type and default of each field of the types of a hook, or of the object that they are in."""
        added: list[Field] = []
        for plugin in self.loaded.values():
            for section, ref in types(plugin):
                values = _load(plugin, hook, ref)
                defaults = values()
                fields = [(item.name, item.type, getattr(defaults, item.name)) for item in structs.fields(values)]
                fields = [(section, values, defaults)] if section else fields
                self._own(plugin, [(kind, name) for name, _, _ in fields])
                added += fields
        return added

    def _imported(self, hook: str, names: Callable[[Any], Iterable[tuple[str, str]]]) -> Sequence[Any]:
        """Return what a hook of all plugins names; `names` yields the kind and name of each item."""
        found: list[Any] = []
        for plugin in self.loaded.values():
            ref: Ref[Sequence[Any]] | None = getattr(plugin, hook)
            for item in () if ref is None else _load(plugin, hook, ref):
                self._own(plugin, _call(plugin, hook, Iterable, names, item))
                found.append(item)
        return found

    def protocols(self, settings: "ServerSettings") -> Protocols:
        """Return the enabled protocols of a server, with the endpoints and methods that plugins add to them."""

        def extended(protocol: ProtocolT, hook: str, extend: Ref[Any]) -> ProtocolT:
            added = self._added(hook, protocol.name)
            return extend.load()(protocol, added) if added else protocol

        found: list[Protocols] = []
        for plugin in self.loaded.values():
            if plugin.protocols is not None:
                protocols = _call(
                    plugin, "protocols", Protocols, _load(plugin, "protocols", plugin.protocols), settings
                )
                served = (*protocols.http, *(port.protocol for port in protocols.ports), *protocols.grpc)
                self._own(plugin, [("protocol", protocol.name) for protocol in served])
                self._own(plugin, [("gRPC port", name) for name in protocols.grpc_ports])
                found.append(protocols)
        return Protocols(
            http=[extended(item, "endpoints", _WITH_ENDPOINTS) for protocols in found for item in protocols.http],
            ports=[port for protocols in found for port in protocols.ports],
            grpc=[extended(item, "methods", _WITH_METHODS) for protocols in found for item in protocols.grpc],
            grpc_ports={name: port for protocols in found for name, port in protocols.grpc_ports.items()},
        )

    def start(self, host: Host) -> Sequence[Parts]:
        """Return what plugins add to a server. An exception of a plugin gets a note with the plugin's name."""
        parts: list[Parts] = []
        host.engine.provided.is_starting = True
        for plugin in self.loaded.values():
            try:
                added = plugin.start and _call(plugin, "start", Parts | None, plugin.start.load(), host)
            except Exception as error:
                error.add_note(f"The plugin {plugin.name} could not start")
                raise
            parts += [added] if added else []
        host.engine.provided.is_starting = False
        return parts

    def _added(self, hook: str, name: str) -> Sequence[Any]:
        """Return what a hook of plugins that is a mapping names for `name`; functions name their plugin in errors."""
        plugins = [plugin for plugin in self.loaded.values() if name in getattr(plugin, hook)]
        found = [(plugin, _load(plugin, hook, getattr(plugin, hook)[name])) for plugin in plugins]
        return [partial(_call, plugin, hook, Sequence, item) if callable(item) else item for plugin, item in found]

    @cached_property
    def public(self) -> Mapping[str, Ref[object]]:
        """The objects that the module `charioteer` offers, by name."""
        return {name: ref for plugin in self.loaded.values() for name, ref in plugin.public.items()}


def _load(plugin: Plugin, hook: str, ref: Ref[T]) -> T:
    try:
        return ref.load()
    except Exception as error:
        raise _failure(plugin, hook, error) from error


def _call(plugin: Plugin, hook: str, expected: Any, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a hook. Raise PluginError for a wrong signature or result, and for a missing attribute."""
    try:
        found = function(*arguments)
    except (AttributeError, TypeError) as error:
        raise _failure(plugin, hook, error) from error
    if not isinstance(found, expected):
        raise PluginError(f"plugin {plugin.name}: its hook {hook} returned {type(found).__name__}, not {expected}")
    return found


def _failure(plugin: Plugin, hook: str, error: Exception) -> PluginError:
    place = extract_tb(error.__traceback__)[-1]
    where = "" if place.filename == __file__ else f" ({place.filename}:{place.lineno})"
    return PluginError(f"plugin {plugin.name}: its hook {hook} failed: {type(error).__name__}: {error}{where}")


def __getattr__(name: str) -> Any:
    """Return a composed class under its name, so that its objects can be pickled for other processes."""
    properties = {"ModelOptions": "model_options", "ModelSettings": "model_settings", "ServerSettings": "settings"}
    if name in properties:
        return getattr(registry(), properties[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def registry() -> PluginRegistry:
    """Return the plugins of this process. They are imported at the first call.

    Raise PluginError if a plugin cannot be loaded.
    """
    return PluginRegistry(find(enabled()))
