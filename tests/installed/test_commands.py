"""Every command of `charioteer` with its default options, in an environment with the base dependencies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from app.cli import cli
from tests.installed.environments import linked
from tests.installed.readme import commands
from tests.installed.test_extras import NEEDING
from tests.installed.workspace import Workspace

COMMANDS: dict[str, str] = {
    "env-schema": "",
    "keys list": "--file keys.json",
    "keys remove": "camera-7 --file keys.json",
    "manifest": "path/to/model",
    "models": "",
    "pack": "path/to/model --output model.tar.gz",
}
"""The arguments of each command that README.md does not run, in the order in which one needs another."""


def leaves(app: App, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Return the words of every command of the command line."""
    for name in app:
        if not name.startswith("-"):
            inner = app[name]
            names = [each for each in inner if not each.startswith("-")]
            if names:
                yield from leaves(inner, (*words, name))
            else:
                yield " ".join((*words, name))


def test_each_command_is_run_by_a_test_of_this_folder() -> None:
    found = set(leaves(cli))
    assert {"serve", "keys add", "drift baseline"} <= found
    lines = [line.partition("charioteer ")[2] for line in commands()]
    in_readme = {name for name in found if any(f"{line} ".startswith(f"{name} ") for line in lines)} | {"serve"}
    in_extras = {words.split()[0] for words in NEEDING}
    assert in_readme | in_extras | COMMANDS.keys() == found
    assert not in_readme & COMMANDS.keys()


def test_commands_run_with_the_base_dependencies(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, linked())
    assert workspace.run(".venv/bin/charioteer keys add camera-7 --file keys.json").returncode == 0
    for name, arguments in COMMANDS.items():
        done = workspace.run(f".venv/bin/charioteer {name} {arguments}")
        assert done.returncode == 0, f"{name}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{name}\n{done.stderr}"


@pytest.mark.parametrize("name", ["", "keys", "drift"])
def test_help_is_printed_with_the_base_dependencies(name: str, tmp_path: Path) -> None:
    done = Workspace(tmp_path, linked()).run(f".venv/bin/charioteer {name} --help")
    assert done.returncode == 0, done.stderr
    assert "Usage: charioteer" in done.stdout
