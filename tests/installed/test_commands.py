"""Run every command of `charioteer` with its default options and the base dependencies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from app.core.cli import command_line
from tests.installed.environments import linked_environment
from tests.installed.test_extras import EXTRA_OF_COMMAND
from tests.installed.test_readme import commands
from tests.installed.workspace import Workspace

COMMANDS: dict[str, str] = {
    "config": "--port 9000",
    "env-schema": "",
    "keys list": "--file keys.json",
    "keys remove": "camera-7 --file keys.json",
    "manifest": "path/to/model",
    "models": "",
    "pack": "path/to/model --output model.tar.gz",
    "plugins": "",
    "shadow": "--help",
    "truth import": "--help",
}
"""Arguments of each command that README.md does not run; some need files of earlier ones, two a store."""


def command_names(app: App, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Return the words of every command of the command line."""
    for name in app:
        if not name.startswith("-"):
            subcommands = app[name]
            names = [subcommand for subcommand in subcommands if not subcommand.startswith("-")]
            if names:
                yield from command_names(subcommands, (*words, name))
            else:
                yield " ".join((*words, name))


def test_every_command_is_run_by_a_test() -> None:
    names = set(command_names(command_line()))
    assert {"serve", "keys add", "drift baseline"} <= names
    lines = [line.partition("charioteer ")[2] for line in commands()]
    in_readme = {name for name in names if any(f"{line} ".startswith(f"{name} ") for line in lines)} | {"serve"}
    in_extras = {name for name in names if any(f"{words} ".startswith(f"{name} ") for words in EXTRA_OF_COMMAND)}
    assert in_readme | in_extras | COMMANDS.keys() == names
    assert not in_readme & COMMANDS.keys()


@pytest.mark.slow
def test_commands_run_with_the_base_dependencies(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, linked_environment())
    assert workspace.run(".venv/bin/charioteer keys add camera-7 --file keys.json").returncode == 0
    for name, arguments in COMMANDS.items():
        process = workspace.run(f".venv/bin/charioteer {name} {arguments}")
        assert process.returncode == 0, f"{name}\n{process.stdout}{process.stderr}"
        assert "Traceback" not in process.stderr, f"{name}\n{process.stderr}"


@pytest.mark.parametrize("name", ["", "drift"])
def test_help_is_printed_with_the_base_dependencies(name: str, tmp_path: Path) -> None:
    process = Workspace(tmp_path, linked_environment()).run(f".venv/bin/charioteer {name} --help")
    assert process.returncode == 0, process.stderr
    assert "Usage: charioteer" in process.stdout
