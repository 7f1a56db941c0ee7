"""Parse the Containerfile; only the syntax that it uses is supported."""

import json
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.servers.server_process import ROOT

FILE = ROOT / "deploy" / "Containerfile"
PREFIX = "/opt/charioteer"


class Instruction(NamedTuple):
    """An instruction with its lines joined, such as `COPY` and `app app`."""

    name: str
    arguments: str


def stages() -> list[list[Instruction]]:
    """Return the instructions of each stage; the first one is FROM."""
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.MULTILINE))
    found_stages: list[list[Instruction]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            found_stages.append([])
        if found_stages:
            found_stages[-1].append(Instruction(name, arguments))
    return found_stages


def arguments_of(stage: Sequence[Instruction], name: str) -> list[str]:
    return [instruction.arguments for instruction in stage if instruction.name == name]


def only_argument(stage: Sequence[Instruction], name: str) -> str:
    (arguments,) = arguments_of(stage, name)
    return arguments


def environment(stage: Sequence[Instruction]) -> dict[str, str]:
    pairs = (pair.partition("=") for arguments in arguments_of(stage, "ENV") for pair in shlex.split(arguments))
    return {name: value for name, _, value in pairs}


def copied_paths(stage: Sequence[Instruction]) -> list[str]:
    """Return the paths that COPY takes from the repository."""
    words = (arguments.split() for arguments in arguments_of(stage, "COPY") if not arguments.startswith("--from"))
    return [source for paths in words for source in paths[:-1]]


def command(stage: Sequence[Instruction]) -> list[str]:
    return [*json.loads(only_argument(stage, "ENTRYPOINT")), *json.loads(only_argument(stage, "CMD"))]


def health_command(stage: Sequence[Instruction]) -> list[str]:
    return json.loads(only_argument(stage, "HEALTHCHECK").partition(" CMD ")[2])
