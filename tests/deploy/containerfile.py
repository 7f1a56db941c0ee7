"""The Containerfile, read as far as it is written."""

import json
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.server_process import ROOT

FILE = ROOT / "deploy" / "Containerfile"
PREFIX = "/opt/charioteer"


class Instruction(NamedTuple):
    """One instruction, its lines joined: `COPY` and `app app`."""

    name: str
    rest: str


def stages() -> list[list[Instruction]]:
    """The instructions of each stage, each beginning with its FROM."""
    text = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.MULTILINE))
    found: list[list[Instruction]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append(Instruction(name, rest))
    return found


def every(stage: Sequence[Instruction], name: str) -> list[str]:
    return [each.rest for each in stage if each.name == name]


def only(stage: Sequence[Instruction], name: str) -> str:
    (rest,) = every(stage, name)
    return rest


def environment(stage: Sequence[Instruction]) -> dict[str, str]:
    pairs = (pair.partition("=") for rest in every(stage, "ENV") for pair in shlex.split(rest))
    return {name: value for name, _, value in pairs}


def sources(stage: Sequence[Instruction]) -> list[str]:
    """What COPY takes from the repository."""
    words = (rest.split() for rest in every(stage, "COPY") if not rest.startswith("--from"))
    return [source for each in words for source in each[:-1]]


def command(stage: Sequence[Instruction]) -> list[str]:
    return [*json.loads(only(stage, "ENTRYPOINT")), *json.loads(only(stage, "CMD"))]


def health_command(stage: Sequence[Instruction]) -> list[str]:
    return json.loads(only(stage, "HEALTHCHECK").partition(" CMD ")[2])
