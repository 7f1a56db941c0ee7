"""Run the commands of README.md in order, with nothing installed but what it says."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.installed.environments import (
    EXTRAS,
    Environment,
    build_wheel,
    environment_with_extras,
    linked_environment,
    makefile_environment,
    wheel_environment,
)
from tests.installed.readme import TEXT, commands, named_commands, named_targets
from tests.installed.workspace import Workspace
from tests.support.server_process import ROOT

CreateEnvironment = Callable[..., Environment]
"""Creates an environment from the names of extras."""

DEFAULT_ADDRESS = "http://127.0.0.1:8080"
QUICK_OPTIONS = {"tune": "--seconds 0.05 --batches 1 --threads 1"}
"""Options for commands whose defaults take half a minute; added unless `full` is set."""

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="README.md needs curl")


def test_commands_of_the_readme_run_with_the_base_dependencies(tmp_path: Path) -> None:
    run_readme(tmp_path, linked_environment, full=False)


@pytest.mark.slow
def test_commands_of_the_readme_run_in_make_serve_environment(tmp_path: Path) -> None:
    base = makefile_environment()
    # The fast test uses a linked environment, which must equal the one that users get.
    assert base.packages() == linked_environment().packages()
    run_readme(tmp_path, lambda *extras: linked_environment(*extras) if extras else base, full=True)


@pytest.mark.slow
def test_commands_of_the_readme_run_from_the_wheel(tmp_path: Path) -> None:
    base = wheel_environment(build_wheel(tmp_path / "wheel"))
    assert base.packages() == linked_environment().packages()
    (folder := tmp_path / "checkout").mkdir()
    # The wheel contains no models; README.md uses those of the checkout.
    models = {"MODEL_DIR": "fixtures/models"}
    run_readme(
        folder, lambda *extras: environment_with_extras(base, *extras) if extras else base, full=False, variables=models
    )


def test_names_of_commands_and_targets_in_the_readme_exist() -> None:
    from app.cli import cli

    assert named_commands() >= {"export", "pack", "env-schema"}
    assert [name for name in named_commands() if name not in cli] == []
    makefile = (ROOT / "Makefile").read_text()
    assert named_targets() >= {"serve", "test", "help"}
    assert [name for name in named_targets() if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def run_readme(
    folder: Path, environment: CreateEnvironment, *, full: bool, variables: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run every command of README.md in order. The first server runs until the end, as it does for a reader.

    Args:
        folder: an empty one.
        environment: becomes the reader's ``.venv``.
        full: whether slow commands run with exactly the options in README.md.
        variables: set for every command.
    """
    workspace, address = Workspace(folder, environment()), None
    workspace.environment.update(variables)
    with ExitStack() as stack:
        for command in commands():
            words = shlex.split(command, comments=True)
            if command == "make serve":
                address = stack.enter_context(workspace.serving(command))
            elif words[1] == "serve":
                with workspace.serving(command) as server_address:
                    workspace.try_server(command, server_address)
            elif words[0].endswith("/pip"):
                workspace.use(environment(*extras_of(words)))
            else:
                assert address or DEFAULT_ADDRESS not in command, f"nothing serves yet: {command}"
                run(
                    workspace,
                    command.replace(DEFAULT_ADDRESS, address or ""),
                    "" if full else QUICK_OPTIONS.get(words[1], ""),
                )


def extras_of(words: list[str]) -> list[str]:
    """Return the extras that a pip command installs; it must install this project."""
    match = re.fullmatch(r"\.\[([a-z,]+)\]", words[-1])
    assert words[1:-1] == ["install", "--editable"], words
    assert match, words
    extras = match[1].split(",")
    assert {*extras} <= EXTRAS.keys()
    return extras


def run(workspace: Workspace, command: str, options: str) -> None:
    line = command if not options else f"{command.partition('  #')[0]} {options}"
    process = workspace.run(line)
    assert process.returncode == 0, f"{line}\n{process.stdout}{process.stderr}"
    assert "Traceback" not in process.stderr, f"{line}\n{process.stderr}"
    if command.startswith("curl"):
        check_documented_response(process.stdout)
    if " keys add " in command:
        workspace.key = process.stdout.strip()


def check_documented_response(response: str) -> None:
    """Compare a response with the one in README.md."""
    (output,) = json.loads(response)["outputs"]
    documented = [
        json.loads(line.strip().removesuffix(",")) for line in re.findall(r"^ +\{\"label\".*$", TEXT, re.MULTILINE)
    ]
    assert len(documented) == 2
    for item, expected in zip(output["data"][0], documented, strict=False):
        assert item.pop("label") == expected.pop("label")
        assert item == pytest.approx(expected, abs=0.5)
    assert json.loads(output["parameters"]["metadata"])[0]["value"] == "north"
