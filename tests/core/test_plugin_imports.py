"""Plugins import core, and the plugins that they declare as their requirements."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from app.core.plugins import registry
from tests.support.removal import PLUGINS, ROOT, bridges

FOLDER = ROOT / "app" / "plugins"
MAX_REQUIREMENTS = 3


@pytest.mark.parametrize("plugin", PLUGINS)
def test_imports_of_other_plugins_are_the_requirements(plugin: str) -> None:
    imported: set[str] = set()
    for file in (FOLDER / plugin).rglob("*.py"):
        # A bridge imports the plugin that it is for.
        imported |= _imported_plugins(file) - {plugin, _bridge(plugin, file)}
    assert imported == {*_requirements(plugin)}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_plugin_requires_few_others_and_not_in_a_circle(plugin: str) -> None:
    assert len(_requirements(plugin)) <= MAX_REQUIREMENTS
    pending, found = {*_requirements(plugin)}, set[str]()
    while pending:
        found.add(name := pending.pop())
        pending |= {*_requirements(name)} - found
    assert plugin not in found


@pytest.mark.parametrize("plugin", [plugin for plugin in PLUGINS if bridges(plugin)])
def test_bridges_are_imported_by_no_other_module(plugin: str) -> None:
    names = {f"app.plugins.{plugin}.{other}" for other in bridges(plugin)}
    for file in ROOT.glob("app/**/*.py"):
        if not _bridge(plugin, file):
            assert not [name for name in _imports(file) if any(f"{name}.".startswith(f"{own}.") for own in names)], file


def test_listing_the_plugins_imports_none_of_their_modules_but_settings() -> None:
    program = """
import sys
from app.core.hooks import Plugin
from app.core.plugins import registry
registry()
modules = [(name, module) for name, module in sys.modules.items() if name.startswith("app.plugins.")]
print(sorted({name.rpartition(".")[2] for name, module in modules if not hasattr(module, "__path__")}))
"""
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "['settings']"


def _requirements(plugin: str) -> tuple[str, ...]:
    return tuple(registry().loaded[plugin].requires)


def _bridge(plugin: str, file: Path) -> str | None:
    """Return the plugin that a module of a plugin is a bridge to, or None."""
    if not file.is_relative_to(FOLDER / plugin):
        return None
    name = file.relative_to(FOLDER / plugin).parts[0].removesuffix(".py")
    return name if name in bridges(plugin) else None


def _imported_plugins(file: Path) -> set[str]:
    parts = [name.split(".") for name in _imports(file)]
    return {names[2] for names in parts if names[:2] == ["app", "plugins"]}


@cache
def _imports(file: Path) -> Sequence[str]:
    """Return every name that a module imports when it runs, with its package."""
    names: list[str] = []
    tree = ast.parse(file.read_text())
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    type_only = {id(node) for block in blocks for child in block.body for node in ast.walk(child)}
    for node in ast.walk(tree):
        if id(node) in type_only:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
