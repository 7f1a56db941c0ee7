"""The server works without plugins: the folder of each of them, or of all, may be deleted."""

import pytest

from tests.support.removal import PLUGINS, Tree, bridges, exceptions

EXCEPTIONS = exceptions()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Copy the code."""
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_core_and_bridged_plugins_work_without_one_plugin(tree: Tree, plugin: str) -> None:
    if plugin in EXCEPTIONS:
        pytest.skip(f"pyproject.toml allows {', '.join(EXCEPTIONS[plugin])}")
    with tree.without(plugin):
        tree.try_out([plugin], [other for other in PLUGINS if plugin in bridges(other) or other in bridges(plugin)])


def test_core_works_without_plugins(tree: Tree) -> None:
    if EXCEPTIONS:
        pytest.skip(f"pyproject.toml allows {', '.join(line for lines in EXCEPTIONS.values() for line in lines)}")
    with tree.without():
        tree.try_out(PLUGINS)


def test_missing_plugin_of_an_import_is_an_error(tree: Tree) -> None:
    """The check itself: a module of core that imports a deleted plugin fails it."""
    module = tree.folder / "app" / "core" / "cli" / "bad.py"
    module.write_text("from app.plugins.otel.settings import TracingSettings\n")
    with tree.without("otel"), pytest.raises(AssertionError, match=r"No module named 'app\.plugins\.otel'"):
        tree.try_out(["otel"])
    module.unlink()


def test_pytest_without_the_checker_names_the_missing_plugin(tree: Tree) -> None:
    program = "import sys, pytest; sys.path[:0] = ['app/public_api']; sys.exit(pytest.main(sys.argv[1:]))"
    with tree.without("conformance"):
        completed = tree.python("-c", program, "--conform-url", "http://127.0.0.1:1", "--collect-only")
    assert completed.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--conform-url needs Charioteer's plugin conformance, which is not loaded" in completed.stderr
