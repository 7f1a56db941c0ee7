"""Extract the commands of README.md and docs/tutorial.md, in order."""

import re
from collections.abc import Iterator, Sequence

from tests.support.servers.server_process import ROOT

README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND_NAME = re.compile(r"`charioteer ([a-z][a-z -]*)`")
_TARGET = re.compile(r"^make ([a-z-]+)$|`make ([a-z-]+)`", re.MULTILINE)


def commands(text: str = README) -> Sequence[str]:
    """Return each command of a fenced block."""
    return [line for match in _FENCE.finditer(text) for line in _lines(match)]


def named_commands() -> set[str]:
    """Return the commands of `charioteer` that are named in inline code."""
    return set(_COMMAND_NAME.findall(README))


def named_targets() -> set[str]:
    """Return the targets of the Makefile that are named in inline code or run in a block."""
    return {first or second for first, second in _TARGET.findall(README)}


def _lines(block: re.Match[str]) -> Iterator[str]:
    match block["language"]:
        case "sh":
            yield from filter(None, block["content"].replace("\\\n", " ").splitlines())
        case other:
            raise AssertionError(f"the document has a block of {other!r}: expected sh")
