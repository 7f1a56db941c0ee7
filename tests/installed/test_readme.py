"""Run the commands of README.md and the tutorial in order, with nothing installed but what they say."""

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.installed.environments import EXTRAS, linked_environment, makefile_environment
from tests.installed.workspace import Workspace
from tests.support.servers.server_process import ROOT

README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND_NAME = re.compile(r"`charioteer ([a-z][a-z -]*)`")
_TARGET = re.compile(r"^make ([a-z-]+)$|`make ([a-z-]+)`", re.MULTILINE)
DEFAULT_ADDRESS = "127.0.0.1:8080"
QUICK_OPTIONS = {"explain": "--samples 40"}
"""Options for commands whose defaults take seconds to half a minute."""
ENVIRONMENT = ["python3 -m venv .venv", ". .venv/bin/activate"]
README_ENVIRONMENT = ["python3 -m venv .venv && . .venv/bin/activate", "pip install '.[demo]'"]
"""Commands that the workspace has already run."""
DEMO_PACKAGES = {
    "charset-normalizer",
    "colorlog",
    "omegaconf",
    "pyclipper",
    "rapidocr",
    "requests",
    "shapely",
    "six",
    "urllib3",
}
"""What the extra `demo` adds."""


def commands(text: str = README) -> Sequence[str]:
    """Return each command of the fenced blocks, which must be for the shell."""
    blocks = [block for block in _FENCE.findall(text) if block[0] != "json"]
    assert {language for language, _ in blocks} == {"sh"}
    return [line for _, content in blocks for line in content.replace("\\\n", " ").splitlines() if line]


@pytest.mark.slow
def test_commands_of_the_readme_run_with_the_base_dependencies_and_print_the_answer(tmp_path: Path) -> None:
    # `make serve` has its own test, and installs the same extra.
    readme = commands()
    assert readme[:2] == README_ENVIRONMENT
    printed = run_all(readme[2:], Workspace(tmp_path, linked_environment()))
    (shown,) = (content for language, content in _FENCE.findall(README) if language == "json")
    (answer,) = (output for command, output in printed.items() if command.startswith("curl "))
    assert "".join(answer.split()).startswith("".join(shown.removesuffix("...\n").split()))


@pytest.mark.slow
def test_commands_of_the_tutorial_run_in_order(tmp_path: Path) -> None:
    tutorial = commands(TUTORIAL)
    assert tutorial[:2] == ENVIRONMENT
    run_all(tutorial[2:], Workspace(tmp_path, linked_environment()))
    assert {"found.png", "report.html", "model.tar.gz"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_make_serve_installs_the_base_dependencies_and_serves(tmp_path: Path) -> None:
    environment = makefile_environment()
    # The other tests use linked environments, which must equal the one that users get, without its extra `demo`.
    assert environment.packages() == linked_environment().packages() | DEMO_PACKAGES
    workspace = Workspace(tmp_path, environment)
    with workspace.serving("make serve") as address:
        workspace.try_server("make serve", address)
        image = base64.b64encode((ROOT / "fixtures" / "images" / "line.jpg").read_bytes()).decode()
        answer = httpx.post(
            f"{address}/v1/models/text-reader:predict", json={"instances": [{"b64": image}]}, timeout=60
        )
        assert "Wheels and axles since 1896" in answer.text


def test_names_of_commands_and_targets_in_the_readme_exist() -> None:
    from app.core.cli import command_line

    names = set(_COMMAND_NAME.findall(README))
    assert names >= {"export", "pack", "conform"}
    assert [name for name in names if name not in command_line()] == []
    targets = {first or second for first, second in _TARGET.findall(README)}
    assert targets >= {"serve", "test", "help"}
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def extras_of(words: list[str]) -> list[str]:
    """Return the extras that a pip command installs; it must install the checkout, or extras of what is installed."""
    match = re.fullmatch(r"\.|charioteer\[([a-z,]+)\]", words[-1])
    assert words[1:-1] == ["install"], words
    assert match, words
    extras = match[1].split(",") if match[1] else []
    assert {*extras} <= EXTRAS.keys()
    return extras


def run_all(document: Sequence[str], workspace: Workspace) -> Mapping[str, str]:
    """Run the commands of a document in order, and return what they print.

    The first server runs until the end, as it does for a reader.
    """
    address = None
    printed: dict[str, str] = {}
    with ExitStack() as stack:
        for command in document:
            words = shlex.split(command, comments=True)
            if words[1] == "serve" and address is None:
                address = stack.enter_context(workspace.serving(command))
            elif words[1] == "serve":
                with workspace.serving(command) as server_address:
                    workspace.try_server(command, server_address)
            elif words[0] == "pip":
                workspace.use(linked_environment(*extras_of(words)))
            else:
                assert address or DEFAULT_ADDRESS not in command, f"nothing serves yet: {command}"
                line = command.replace(DEFAULT_ADDRESS, (address or "").removeprefix("http://"))
                printed[command] = run(workspace, line, QUICK_OPTIONS.get(words[1], ""))
    return printed


def run(workspace: Workspace, command: str, options: str = "") -> str:
    line = command if not options else f"{command.partition('  #')[0]} {options}"
    process = workspace.run(line)
    assert process.returncode == 0, f"{line}\n{process.stdout}{process.stderr}"
    assert "Traceback" not in process.stderr, f"{line}\n{process.stderr}"
    if " keys add " in command:
        workspace.key = process.stdout.strip()
    return process.stdout
