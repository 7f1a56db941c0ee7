"""The server works without plugins: the folder of each of them, or of all, may be deleted.

`make test-removal` deletes each plugin alone. These tests delete many at a time, because each time starts a process.
"""

from collections.abc import Collection

import pytest

from app.core.plugins import registry
from tests.support.removal import PLUGINS, Tree

REQUIRED = {name for plugin in registry().loaded.values() for name in plugin.requires}
"""The plugins that others require."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Copy the code."""
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.mark.slow
@pytest.mark.parametrize("removed", [REQUIRED, {*PLUGINS} - REQUIRED], ids=["required", "others"])
def test_core_and_some_plugins_work_without_the_others(tree: Tree, removed: Collection[str]) -> None:
    with tree.without(*removed):
        tree.try_out(removed, {*PLUGINS} - {*removed})


def test_core_works_without_plugins(tree: Tree) -> None:
    with tree.without():
        tree.try_out(PLUGINS)
