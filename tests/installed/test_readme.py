"""README.md, read from top to bottom by somebody who has nothing but what it says to install."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.installed.environments import EXTRAS, Environment, installed, layered, linked, made, wheel
from tests.installed.readme import TEXT, commands, named_commands, named_targets
from tests.installed.workspace import Workspace
from tests.support.server_process import ROOT

WithExtras = Callable[..., Environment]
"""An environment, given the names of extras."""

DEFAULT_ADDRESS = "http://127.0.0.1:8080"
QUICK = {"tune": "--seconds 0.05 --batches 1 --threads 1"}
"""Options that make a command quick whose defaults take half a minute; added where `whole` is not asked for."""

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="README.md needs curl")


def test_commands_of_the_readme_run_with_the_base_dependencies(tmp_path: Path) -> None:
    read(tmp_path, linked, whole=False)


@pytest.mark.slow
def test_commands_of_the_readme_run_as_make_serve_installs_them(tmp_path: Path) -> None:
    base = made()
    # A linked environment is what pip makes: otherwise the quick test tries something that no user has.
    assert base.packages() == linked().packages()
    read(tmp_path, lambda *extras: linked(*extras) if extras else base, whole=True)


@pytest.mark.slow
def test_commands_of_the_readme_run_from_the_wheel(tmp_path: Path) -> None:
    base = installed(wheel(tmp_path / "wheel"))
    assert base.packages() == linked().packages()
    (folder := tmp_path / "checkout").mkdir()
    # The wheel brings no models, which README.md takes from the checkout.
    models = {"MODEL_DIR": "fixtures/models"}
    read(folder, lambda *extras: layered(base, *extras) if extras else base, whole=False, variables=models)


def test_names_of_commands_and_targets_in_the_readme_exist() -> None:
    from app.cli import cli

    assert named_commands() >= {"export", "pack", "env-schema"}
    assert [name for name in named_commands() if name not in cli] == []
    makefile = (ROOT / "Makefile").read_text()
    assert named_targets() >= {"serve", "test", "help"}
    assert [name for name in named_targets() if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def read(
    folder: Path, environment: WithExtras, *, whole: bool, variables: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run every command of README.md in its order. The first server goes on until the end, as a reader's does.

    Args:
        folder: an empty one.
        environment: becomes the reader's ``.venv``.
        whole: whether every command has the options that README.md gives it, even where it takes long.
        variables: set for every command.
    """
    workspace, address = Workspace(folder, environment()), None
    workspace.environment.update(variables)
    with ExitStack() as until_the_end:
        for command in commands():
            words = shlex.split(command, comments=True)
            if command == "make serve":
                address = until_the_end.enter_context(workspace.serving(command))
            elif words[1] == "serve":
                with workspace.serving(command) as served:
                    workspace.try_server(command, served)
            elif words[0].endswith("/pip"):
                workspace.use(environment(*extras_of(words)))
            else:
                assert address or DEFAULT_ADDRESS not in command, f"nothing serves yet: {command}"
                run(
                    workspace, command.replace(DEFAULT_ADDRESS, address or ""), "" if whole else QUICK.get(words[1], "")
                )


def extras_of(words: list[str]) -> list[str]:
    """Return the extras that a command of pip installs, which has to be one of this project."""
    found = re.fullmatch(r"\.\[([a-z,]+)\]", words[-1])
    assert words[1:-1] == ["install", "--editable"], words
    assert found, words
    extras = found[1].split(",")
    assert {*extras} <= EXTRAS.keys()
    return extras


def run(workspace: Workspace, command: str, more: str) -> None:
    line = command if not more else f"{command.partition('  #')[0]} {more}"
    done = workspace.run(line)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, f"{line}\n{done.stderr}"
    if command.startswith("curl"):
        check_shown_answer(done.stdout)
    if " keys add " in command:
        workspace.key = done.stdout.strip()


def check_shown_answer(answer: str) -> None:
    """Hold an answer against the one that README.md shows."""
    (output,) = json.loads(answer)["outputs"]
    shown = [
        json.loads(line.strip().removesuffix(",")) for line in re.findall(r"^ +\{\"label\".*$", TEXT, re.MULTILINE)
    ]
    assert len(shown) == 2
    for item, expected in zip(output["data"][0], shown, strict=False):
        assert item.pop("label") == expected.pop("label")
        assert item == pytest.approx(expected, abs=0.5)
    assert json.loads(output["parameters"]["metadata"])[0]["value"] == "north"
