"""The server works without plugins: the folder of each of them, or of all, may be deleted.

`make test-removal` deletes each plugin alone. These tests delete a few at a time, because each time starts a process.
"""

from collections.abc import Sequence

import pytest

from app.core.plugins import registry
from tests.support.removal import PLUGINS, Tree, bridges


def bridged(plugin: str) -> set[str]:
    """Return the plugins with a bridge from or to a plugin."""
    return {other for other in PLUGINS if plugin in bridges(other) or other in bridges(plugin)}


def tried_without(plugin: str) -> set[str]:
    """Return the plugins to try without a plugin, and those that they require."""
    found, pending = set[str](), bridged(plugin)
    while pending:
        found.add(name := pending.pop())
        pending |= {*registry().loaded[name].requires} - found
    return found


def make_groups(number: int) -> Sequence[Sequence[str]]:
    """Return groups of plugins to delete together. No trial without one of them needs another of its group."""
    groups: list[list[str]] = [[] for _ in range(number)]
    for plugin in sorted(PLUGINS, key=lambda name: -len(bridged(name))):
        fitting = [
            group
            for group in groups
            if tried_without(plugin).isdisjoint(group) and not any(plugin in tried_without(other) for other in group)
        ]
        min(fitting, key=len).append(plugin)
    return groups


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Copy the code."""
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.mark.parametrize("group", make_groups(6), ids="+".join)
def test_core_and_bridged_plugins_work_without_some_plugins(tree: Tree, group: Sequence[str]) -> None:
    with tree.without(*group):
        tree.try_out(group, sorted(set[str]().union(*map(bridged, group))))


def test_core_works_without_plugins(tree: Tree) -> None:
    with tree.without():
        tree.try_out(PLUGINS)
