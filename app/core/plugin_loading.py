"""Find plugins: which are loaded, which are skipped and why, and which could be enabled."""

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import structs

from app.core.hooks import API, Plugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "charioteer.plugins"
"""The group of entry points of third-party plugins."""

VARIABLE = "CHARIOTEER_PLUGINS"
"""The environment variable with the names of enabled third-party plugins, separated by commas. Child processes inherit
it, so that they load the same plugins."""

_ROOT = __name__.removesuffix(".core.plugin_loading")
"""`app`, or `charioteer.app` in a user's process."""


class PluginError(Exception):
    """A plugin cannot be loaded. The message names it and is for the operator."""


class LoadedPlugins:
    """Plugins in the order of their requirements, and the names that they have.

    Raise PluginError if a name exists twice, or plugins require each other in a circle.

    Attributes:
        loaded: the plugins in use, by name.
        skipped: the reasons why others are not, by name.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.loaded: dict[str, Plugin] = {}
        self.skipped: dict[str, str] = {}
        self._owners: dict[tuple[str, str], str] = {}
        for plugin in _ordered(plugins):
            self._register(plugin)

    def unused(self) -> Mapping[str, str]:
        """Return the plugins that are not loaded: the skipped ones with the reason, and the ones to enable."""
        others = installed().keys() - self.loaded.keys() - self.skipped.keys()
        return self.skipped | {name: f"--plugins {name} enables it" for name in sorted(others)}

    def advice(self) -> str:
        """Return the end of an error about an unknown name: which plugins may have it; "" if none may."""
        unused = ", ".join(f"{name} ({reason})" for name, reason in self.unused().items())
        return f"; plugins that are not loaded: {unused}" if unused else ""

    def _register(self, plugin: Plugin) -> None:
        """Load a plugin, or skip it with the reason. Built-in and third-party plugins both pass here.

        Raise PluginError if a name exists twice.
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
        self.skipped[plugin.name] = reason

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
    if plugin.page is not None:
        for view in plugin.page.views:
            yield "view", view.id
        for protocol in plugin.page.requests:
            yield "page request", protocol


def _ordered(plugins: Iterable[Plugin]) -> Sequence[Plugin]:
    """Return core, and then plugins by name, each after those that it requires.

    Raise PluginError if plugins require each other in a circle.
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


def find(names: Sequence[str] = ()) -> Sequence[Plugin]:
    """Import the built-in plugins, and the installed ones in `names`.

    Raise PluginError naming a plugin that is not installed, raises, or has a name that exists already.
    """
    packages = ((f"{_ROOT}.core", "core"), *_built_in())
    plugins = [_checked(module := importlib.import_module(path), name, module) for path, name in packages]
    if names:
        entries = installed()
        for name in dict.fromkeys(names):
            if name not in entries:
                known = ", ".join(sorted(entries)) or "none"
                raise PluginError(f"--plugins: no plugin {name!r} is installed; installed are: {known}")
            plugins.append(_load_entry(entries[name]))
    return plugins


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
        loaded = entry.load()
    except Exception as error:
        raise PluginError(f"plugin {entry.name} cannot be loaded: {type(error).__name__}: {error}") from error
    return _checked(loaded, entry.name, sys.modules[entry.module])


def _checked(loaded: Any, name: str, module: ModuleType) -> Plugin:
    plugin = getattr(loaded, "plugin", loaded)
    if not isinstance(plugin, Plugin) or plugin.name not in ("", name):
        raise PluginError(f"plugin {name}: expected an object `plugin` of the class Plugin with this name")
    page, package = plugin.page, Path(module.__file__ or "").parent
    page = page and structs.replace(page, folder=package / page.folder)
    return structs.replace(plugin, name=name, summary=plugin.summary or (module.__doc__ or "").strip(), page=page)


def enabled(environment: Mapping[str, str] = os.environ) -> Sequence[str]:
    """Return the names of the enabled third-party plugins."""
    return [name for part in environment.get(VARIABLE, "").split(",") if (name := part.strip())]
