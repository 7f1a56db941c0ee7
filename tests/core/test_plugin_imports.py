"""Plugins import core, and the plugins that they declare as their requirements."""

import ast
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.plugins import registry
from tests.support.removal import PLUGINS, ROOT

FOLDER = ROOT / "app" / "plugins"
MAX_REQUIREMENTS = 3


@pytest.mark.parametrize("plugin", PLUGINS)
def test_imports_of_other_plugins_are_the_requirements(plugin: str) -> None:
    imported = set[str]().union(*map(_imported_plugins, (FOLDER / plugin).rglob("*.py")))
    assert imported - {plugin} == {*_requirements(plugin)}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_plugin_requires_few_others_and_not_in_a_circle(plugin: str) -> None:
    assert len(_requirements(plugin)) <= MAX_REQUIREMENTS
    pending, found = {*_requirements(plugin)}, set[str]()
    while pending:
        found.add(name := pending.pop())
        pending |= {*_requirements(name)} - found
    assert plugin not in found


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


def _imported_plugins(file: Path) -> set[str]:
    parts = [name.split(".") for name in _imports(file)]
    return {names[2] for names in parts if names[:2] == ["app", "plugins"]}


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
