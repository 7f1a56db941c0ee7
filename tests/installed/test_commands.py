"""Run every command of `charioteer` with its default options and the base dependencies."""

import shlex
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

_PROGRAM = """
import sys
from charioteer import main

for line in sys.argv[1:]:
    sys.argv = ["charioteer", *line.split()]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, line
"""
"""Run commands in one process: most of the work of each would be the imports that all share."""


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
    lines = ["keys add camera-7 --file keys.json", *(f"{name} {arguments}" for name, arguments in COMMANDS.items())]
    program = [".venv/bin/python", "-c", _PROGRAM, *lines]
    process = Workspace(tmp_path, linked_environment()).run(shlex.join(program))
    assert process.returncode == 0, f"{process.stdout}{process.stderr}"
    assert "Traceback" not in process.stderr, process.stderr


@pytest.mark.parametrize("name", ["", "drift"])
def test_help_is_printed_with_the_base_dependencies(name: str, tmp_path: Path) -> None:
    process = Workspace(tmp_path, linked_environment()).run(f".venv/bin/charioteer {name} --help")
    assert process.returncode == 0, process.stderr
    assert "Usage: charioteer" in process.stdout
