"""Run every snippet of docs/clients.md unchanged, with its client, against one server."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

_PAGE = (ROOT / "docs" / "clients.md").read_text()
_SNIPPET = re.compile(r"^## (?P<client>.+?)$.*?^```(\w+)\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SNIPPETS = {match["client"]: match.groups()[1:] for match in _SNIPPET.finditer(_PAGE)}


@pytest.fixture(scope="module")
def server() -> Generator[ServerProcess]:
    with run_server("--model", str(ROOT / "fixtures/models/detector")) as process:
        # The gRPC address is announced after the HTTP address.
        httpx.get(f"{process.address}/v2/health/ready", timeout=60)
        yield process


def test_every_documented_client_has_snippet_and_output() -> None:
    assert list(_SNIPPETS) == re.findall(r"^## (.+)$", _PAGE, re.MULTILINE)
    assert list(_SNIPPETS) == ["curl", "httpx", "tritonclient", "kserve", "grpcurl", "JavaScript", "Go", "Java"]


@pytest.mark.parametrize("client", list(_SNIPPETS))
def test_snippet_prints_documented_output(client: str, server: ServerProcess, tmp_path: Path) -> None:
    _, code, documented = _SNIPPETS[client]
    code = code.replace("127.0.0.1:8080", server.address.removeprefix("http://"))
    code = code.replace("127.0.0.1:8081", server.grpc_address)
    process = subprocess.run(
        command(client, code, tmp_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    assert re.fullmatch(pattern(documented), process.stdout, re.DOTALL), process.stdout


def command(client: str, code: str, folder: Path) -> list[str]:
    """Return the command that runs a client's snippet; skip the test if a program is missing."""
    if client == "curl":
        return [program("bash"), "-c", code]
    if client == "grpcurl":
        search_path = f"{python_with('grpcurl').parent}:{os.environ['PATH']}"
        return [program("env"), f"PATH={search_path}", program("bash"), "-c", code]
    if client in ("tritonclient", "kserve"):
        return [str(python_with(client)), "-c", code]
    if client == "httpx":
        return [sys.executable, "-c", code]
    suffix, *launcher = {"JavaScript": (".mjs", "node"), "Go": (".go", "go", "run"), "Java": (".java", "java")}[client]
    file = folder / f"snippet{suffix}"
    file.write_text(code)
    return [program(launcher[0]), *launcher[1:], str(file)]


def program(name: str) -> str:
    match = shutil.which(name)
    if match is None:
        pytest.skip(f"{name} is not installed")
    return match


def pattern(documented: str) -> str:
    """Return a regular expression: "..." matches any text, and numbers may have more digits."""
    parts = [re.sub(r"(\d\\\.\d+)", r"\1\\d*", re.escape(part)) for part in documented.rstrip("\n").split("...")]
    return ".*".join(parts) + r"\s*"
