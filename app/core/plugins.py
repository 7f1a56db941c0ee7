"""The registry of plugins: which are loaded, which are skipped and why, and which could be enabled."""

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, defstruct, structs

from app.core.hooks import (
    API,
    Command,
    ForeignFormat,
    ModelLoader,
    ModelSection,
    Plugin,
    Protocols,
    Ref,
    Runtime,
    TaskSupport,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from app.core.api import GrpcProtocol, HttpProtocol, Layout
    from app.core.settings.model import ModelSettings
    from app.core.settings.server import ModelOptions, ServerSettings
    from tasks.inference.parameters import Field

GROUP = "charioteer.plugins"
"""The group of entry points of third-party plugins."""

VARIABLE = "CHARIOTEER_PLUGINS"
"""The environment variable with the names of enabled third-party plugins, separated by commas. Child processes inherit
it, so that they load the same plugins."""

_ROOT = __name__.removesuffix(".core.plugins")
"""`app`, or `charioteer.app` in a user's process."""

# The settings of core are named, not imported: this module is below all others of core, so that these can ask it.
_SERVER_SETTINGS = Ref["type[ServerSettings]"]("app.core.settings.server:ServerSettings")
_MODEL_OPTIONS = Ref["type[ModelOptions]"]("app.core.settings.server:ModelOptions")
_MODEL_SETTINGS = Ref["type[ModelSettings]"]("app.core.settings.model:ModelSettings")
_EXTENDED_HTTP = Ref[Any]("app.core.protocols.extension:ExtendedHttp")
_ADD_PARAMETERS = Ref["Callable[[Sequence[Field]], None]"]("tasks.inference.parameters:add_parameters")
_EXTENDED_GRPC = Ref[Any]("app.core.protocols.extension:ExtendedGrpc")


class PluginError(Exception):
    """A plugin cannot be loaded. The message names it and is for the operator."""


class Skipped(Struct, frozen=True):
    """A plugin that is not loaded, and the reason."""

    plugin: Plugin
    reason: str


class Registry:
    """Plugins in the order of their requirements.

    Properties that import what a hook names raise `PluginError` if a plugin raises, or if a name exists twice.

    Attributes:
        loaded: the plugins in use, by name.
        skipped: the others, by name.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.loaded: dict[str, Plugin] = {}
        self.skipped: dict[str, Skipped] = {}
        self._owners: dict[tuple[str, str], str] = {}
        for plugin in _ordered(plugins):
            self._register(plugin)

    @cached_property
    def settings_class(self) -> "type[ServerSettings]":
        """Return the class of all options of ``serve``: those of core and of every plugin, in one object."""
        parts = [part for plugin in self.loaded.values() for part in plugin.settings]
        bases = (*reversed(parts), _SERVER_SETTINGS.load())
        return dataclass(frozen=True, kw_only=True)(type("ServerSettings", bases, {}))

    @cached_property
    def model_options_class(self) -> "type[ModelOptions]":
        """Return the class of the options of commands that load models: those of core and of every plugin."""
        parts = [part for plugin in self.loaded.values() for part in plugin.model_options]
        bases = (*reversed(parts), _MODEL_OPTIONS.load())
        return dataclass(frozen=True, kw_only=True)(type("ModelOptions", bases, {}))

    def model_options(self, **options: Any) -> "ModelOptions":
        """Return options of core and of plugins for models."""
        return self.model_options_class(**options)

    @cached_property
    def model_settings_class(self) -> "type[ModelSettings]":
        """Return the class of the settings of a model: those of core and of every plugin."""
        base = _MODEL_SETTINGS.load()
        # Settings name task types and parameters, so that these must exist before the first settings are read.
        _ = self.task_types, self.parameters
        self._owners |= {("model setting", name): "core" for name in base.__struct_fields__}
        added: list[Field] = []
        for plugin in self.loaded.values():
            added += self._section_fields(plugin, "model setting", plugin.model_settings)
        composed = defstruct(
            "ModelSettings",
            added,
            bases=(base,),
            module=__name__,
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
        )
        return cast("type[ModelSettings]", composed)

    @cached_property
    def parameters(self) -> "Sequence[Field]":
        """Return the parameters of inputs that plugins add. From now on, the parameters of all tasks have them."""
        added: list[Field] = []
        for plugin in self.loaded.values():
            added += self._section_fields(plugin, "parameter", plugin.parameters)
        if added:
            _ADD_PARAMETERS.load()(added)
        return added

    def model_settings(self, **values: Any) -> "ModelSettings":
        """Return settings of core and of plugins for a model."""
        return self.model_settings_class(**values)

    def settings(self, **options: Any) -> "ServerSettings":
        """Return the settings of a server with these options of core and of plugins."""
        return self.settings_class(**options)

    @cached_property
    def commands(self) -> Mapping[str, Command]:
        """Return the commands by name."""
        return {command.name: command for plugin in self.loaded.values() for command in plugin.commands}

    @cached_property
    def command_options(self) -> Mapping[str, Sequence[type]]:
        """Return the options that plugins add, by the name of the command."""
        found: dict[str, list[type]] = {}
        for plugin in self.loaded.values():
            for name, kind in plugin.command_options.items():
                found.setdefault(name, []).append(kind)
        return found

    @cached_property
    def layouts(self) -> "Sequence[Layout]":
        """Return the output layouts of ONNX models."""
        return self._imported("layouts", lambda layout: [("layout", name) for name in layout.names])

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

    def _section_fields(self, plugin: Plugin, kind: str, sections: Sequence[ModelSection]) -> "Sequence[Field]":
        """Return the name, type and default of each field that sections add."""
        added: list[Field] = []
        for section in sections:
            values = section.type.load()
            fields = [(item.name, item.type, item.default) for item in structs.fields(values)]
            added += [(section.name, values, values())] if section.name else fields
        self._own(plugin, [(kind, name) for name, _, _ in added])
        return added

    def _imported(self, hook: str, names: Callable[[Any], Iterable[tuple[str, str]]]) -> Sequence[Any]:
        """Return what a hook of all plugins names; `names` yields the kind and name of each item."""
        found: list[Any] = []
        for plugin in self.loaded.values():
            ref: Ref[Sequence[Any]] | None = getattr(plugin, hook)
            if ref is None:
                continue
            try:
                items = ref.load()
            except Exception as error:
                raise PluginError(f"plugin {plugin.name}: {hook}: {type(error).__name__}: {error}") from error
            for item in items:
                self._own(plugin, names(item))
            found += items
        return found

    def advice(self, kind: str, name: str) -> str:
        """Return the end of an error about an unknown name: which plugin would have it; "" if none may."""
        for skipped in self.skipped.values():
            if (kind, name) in _all_names(skipped.plugin):
                return f"; the plugin {skipped.plugin.name} has it, but is not loaded: {skipped.reason}"
        disabled = ", ".join(self.disabled())
        return f"; plugins that are installed, but not enabled by --plugins: {disabled}" if disabled else ""

    def disabled(self) -> Sequence[str]:
        """Return the names of the installed third-party plugins that are not enabled."""
        return sorted(installed().keys() - self.loaded.keys() - self.skipped.keys())

    def protocols(self, settings: "ServerSettings") -> Protocols:
        """Return the enabled protocols of a server, with the endpoints and methods that plugins add to them.

        Raises:
            PluginError: if a name exists twice.
        """
        plugins = self.loaded.values()

        def extended_http(protocol: "HttpProtocol") -> "HttpProtocol":
            added = [plugin.endpoints[protocol.name].load() for plugin in plugins if protocol.name in plugin.endpoints]
            return _EXTENDED_HTTP.load()(protocol, added) if added else protocol

        def extended_grpc(protocol: "GrpcProtocol") -> "GrpcProtocol":
            added = [plugin.methods[protocol.name].load() for plugin in plugins if protocol.name in plugin.methods]
            return _EXTENDED_GRPC.load()(protocol, added) if added else protocol

        found: list[Protocols] = []
        for plugin in plugins:
            if plugin.protocols is not None:
                protocols = plugin.protocols.load()(settings)
                self._own(plugin, _protocol_names(protocols))
                found.append(protocols)
        return Protocols(
            http=[extended_http(protocol) for protocols in found for protocol in protocols.http],
            ports=[port for protocols in found for port in protocols.ports],
            grpc=[extended_grpc(protocol) for protocols in found for protocol in protocols.grpc],
            grpc_ports={name: port for protocols in found for name, port in protocols.grpc_ports.items()},
        )

    def extensions(self, point: str) -> Sequence[Any]:
        """Return what plugins add to an extension point of another plugin, such as ``conformance.protocols``."""
        refs = [plugin.extends[point] for plugin in self.loaded.values() if point in plugin.extends]
        return [item for ref in refs for item in ref.load()]

    @cached_property
    def public(self) -> Mapping[str, Ref[object]]:
        """The objects that the module `charioteer` offers, by name."""
        return {
            name: Ref(f"{module}:{name}") for plugin in self.loaded.values() for name, module in plugin.public.items()
        }

    def owner(self, kind: str, name: str) -> str | None:
        """Return the plugin that has a name of a kind (such as ``command``), or None."""
        return self._owners.get((kind, name))

    def skipped_owner(self, name: str) -> Skipped | None:
        """Return the skipped plugin that has a name, such as that of a command or an option."""
        return next(
            (item for item in self.skipped.values() if any(name == own for _, own in _names(item.plugin))), None
        )

    def _register(self, plugin: Plugin) -> None:
        """Load a plugin, or skip it with the reason. Built-in and third-party plugins both pass here.

        Raises:
            PluginError: if a name exists twice.
        """
        missing = [name for name in plugin.requires if name not in self.loaded]
        if plugin.api != API:
            reason = f"it was written for version {plugin.api} of the hooks, this is version {API}"
        elif missing:
            reason = f"it requires the plugin {missing[0]}, which is not loaded"
        else:
            self._own(plugin, _names(plugin))
            self.loaded[plugin.name] = plugin
            return
        self.skipped[plugin.name] = Skipped(plugin, reason)

    def _own(self, plugin: Plugin, names: Iterable[tuple[str, str]]) -> None:
        for kind, name in names:
            owner = self._owners.setdefault((kind, name), plugin.name)
            if owner != plugin.name or (kind == "plugin" and name in self.loaded):
                raise PluginError(f"plugin {plugin.name}: the plugin {owner} already has the {kind} {name}")


def _names(plugin: Plugin) -> Iterable[tuple[str, str]]:
    """Yield each name that only one plugin may have, with its kind."""
    yield "plugin", plugin.name
    for command in plugin.commands:
        yield "command", command.name
    for name in plugin.public:
        yield "public name", name
    for settings in (*plugin.settings, *plugin.model_options):
        for field in fields(settings):
            yield "option", f"--{field.name.replace('_', '-')}"
    for command, kind in plugin.command_options.items():
        for field in fields(kind):
            yield f"option of {command}", f"--{field.name.replace('_', '-')}"
    if plugin.page is not None:
        for view in plugin.page.views:
            yield "view", view.id
        for protocol in plugin.page.requests:
            yield "page request", protocol


def _all_names(plugin: Plugin) -> Iterable[tuple[str, str]]:
    """Yield the names of a plugin that is not loaded, also those that need an import, unless it fails."""
    yield from _names(plugin)
    for kind, sections in (("model setting", plugin.model_settings), ("parameter", plugin.parameters)):
        for section in sections:
            with suppress(Exception):
                names = [section.name] if section.name else section.type.load().__struct_fields__
                yield from ((kind, name) for name in names)
    with suppress(Exception):
        yield from (("task", str(item.task_type)) for item in (plugin.task_types.load() if plugin.task_types else ()))
    with suppress(Exception):
        yield from (("runtime", item.name) for item in (plugin.runtimes.load() if plugin.runtimes else ()))


def _protocol_names(protocols: Protocols) -> Iterable[tuple[str, str]]:
    for protocol in (*protocols.http, *(port.protocol for port in protocols.ports), *protocols.grpc):
        yield "protocol", protocol.name
    for name in protocols.grpc_ports:
        yield "gRPC port", name


def _ordered(plugins: Iterable[Plugin]) -> Sequence[Plugin]:
    """Return core, and then plugins by name, each after those that it requires.

    Raises:
        PluginError: if plugins require each other in a circle.
    """
    pending = sorted(plugins, key=lambda plugin: (plugin.name != "core", plugin.name))
    names = {plugin.name for plugin in pending}
    ordered: list[Plugin] = []
    while pending:
        done = {plugin.name for plugin in ordered}
        free = [plugin for plugin in pending if not (set(plugin.requires) & names) - done]
        if not free:
            raise PluginError(f"plugin {pending[0].name}: its requirements form a circle")
        ordered += free
        pending = [plugin for plugin in pending if plugin not in free]
    return ordered


def load(names: Sequence[str] = ()) -> Registry:
    """Import the built-in plugins, and the installed ones in `names`.

    Raises:
        PluginError: naming a plugin that is not installed, raises, or has a name that exists already.
    """
    packages = ((f"{_ROOT}.core", "core"), *_built_in())
    plugins = [_checked(importlib.import_module(module), name) for module, name in packages]
    if names:
        entries = installed()
        for name in dict.fromkeys(names):
            if name not in entries:
                known = ", ".join(sorted(entries)) or "none"
                raise PluginError(f"--plugins: no plugin {name!r} is installed; installed are: {known}")
            plugins.append(_load_entry(entries[name]))
    return Registry(plugins)


def installed() -> Mapping[str, "EntryPoint"]:
    """Return the entry points of the installed third-party plugins by name, whether they are enabled or not."""
    # Import late: few servers have such plugins, and the command line starts faster.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _built_in() -> Sequence[tuple[str, str]]:
    """Return the module and the name of each package in `app/plugins/`. A missing folder has none."""
    try:
        package = importlib.import_module(f"{_ROOT}.plugins")
    except ModuleNotFoundError:
        return ()
    return [(f"{_ROOT}.plugins.{module.name}", module.name) for module in pkgutil.iter_modules(package.__path__)]


def _load_entry(entry: "EntryPoint") -> Plugin:
    try:
        module = entry.load()
    except Exception as error:
        raise PluginError(f"plugin {entry.name} cannot be loaded: {type(error).__name__}: {error}") from error
    return _checked(module, entry.name)


def _checked(module: Any, name: str) -> Plugin:
    plugin = getattr(module, "plugin", module)
    if not isinstance(plugin, Plugin) or plugin.name != name:
        raise PluginError(f"plugin {name}: expected an object `plugin` of the class Plugin with this name")
    return plugin


def enabled(environment: Mapping[str, str] = os.environ) -> Sequence[str]:
    """Return the names of the enabled third-party plugins."""
    return [name for part in environment.get(VARIABLE, "").split(",") if (name := part.strip())]


def __getattr__(name: str) -> Any:
    """Return a composed class under its name, so that its objects can be pickled for other processes."""
    if name in _COMPOSED:
        return getattr(registry(), _COMPOSED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_COMPOSED = {
    "ModelOptions": "model_options_class",
    "ModelSettings": "model_settings_class",
    "ServerSettings": "settings_class",
}


@cache
def registry() -> Registry:
    """Return the plugins of this process. They are imported at the first call.

    Raises:
        PluginError: as `load`.
    """
    return load(enabled())
