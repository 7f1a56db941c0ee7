"""Every snippet of docs/clients.md, run as it is written, each with its own client, against one server."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from tests.support.environments import FOLDER, python_with
from tests.support.server_process import ROOT, ServerProcess, serving

_PAGE = (ROOT / "docs" / "clients.md").read_text()
_SNIPPET = re.compile(r"^## (?P<client>.+?)$.*?^```(\w+)\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SNIPPETS = {found["client"]: found.groups()[1:] for found in _SNIPPET.finditer(_PAGE)}


@pytest.fixture(scope="module")
def server() -> Generator[ServerProcess]:
    with serving() as process:
        # The address of gRPC is announced behind the other one.
        httpx.get(f"{process.address}/v2/health/ready", timeout=60)
        yield process


def test_every_client_of_the_page_has_a_snippet_that_says_what_it_prints() -> None:
    assert list(_SNIPPETS) == re.findall(r"^## (.+)$", _PAGE, re.MULTILINE)
    assert list(_SNIPPETS) == ["curl", "httpx", "tritonclient", "kserve", "grpcurl", "JavaScript", "Go"]


@pytest.mark.slow
@pytest.mark.parametrize("client", list(_SNIPPETS))
def test_the_snippet_prints_what_the_page_says(client: str, server: ServerProcess, tmp_path: Path) -> None:
    _, code, shown = _SNIPPETS[client]
    code = code.replace("127.0.0.1:8080", server.address.removeprefix("http://"))
    code = code.replace("127.0.0.1:8081", server.grpc_address)
    done = subprocess.run(
        command(client, code, tmp_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": f"{FOLDER / 'grpcurl' / 'bin'}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(pattern(shown), done.stdout, re.DOTALL), done.stdout


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("star 0.98\n...\n", "star 0.98123\nmoon 1\n", True),
        ("star 0.98\n...\n", "star 0.97\nmoon 1\n", False),
        ("star 0.98\n", "star 0.98\nmoon 1\n", False),
        ('{"a":...}\n', '{"a":1}', True),
    ],
)
def test_dots_on_the_page_stand_for_anything(shown: str, printed: str, same: bool) -> None:
    assert (re.fullmatch(pattern(shown), printed, re.DOTALL) is not None) is same


def command(client: str, code: str, folder: Path) -> list[str]:
    """How the snippet of a client is run; the test is skipped where that is not to be had."""
    if client == "curl":
        return [program("bash"), "-c", code]
    if client == "grpcurl":
        if shutil.which("grpcurl") is None:
            python_with("grpcurl")
        return [program("bash"), "-c", code]
    if client in ("tritonclient", "kserve"):
        return [str(python_with(client)), "-c", code]
    if client == "httpx":
        return [sys.executable, "-c", code]
    file = folder / {"JavaScript": "snippet.mjs", "Go": "snippet.go"}[client]
    file.write_text(code)
    return [program("node"), str(file)] if client == "JavaScript" else [program("go"), "run", str(file)]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def pattern(shown: str) -> str:
    """A regular expression of what is shown: dots stand for anything, and numbers may have more digits."""
    parts = [re.sub(r"(\d\\\.\d+)", r"\1\\d*", re.escape(part)) for part in shown.rstrip("\n").split("...")]
    return ".*".join(parts) + r"\s*"
