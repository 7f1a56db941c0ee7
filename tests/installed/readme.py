"""Extract the commands of README.md, in order."""

import re
from collections.abc import Iterator, Sequence

from tests.support.server_process import ROOT

TEXT = (ROOT / "README.md").read_text()
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(\.venv/bin/[^`\n]+)`(?!`)")
_COMMAND_NAME = re.compile(r"`charioteer ([a-z][a-z -]*)`")
_TARGET = re.compile(r"`make ([a-z-]+)`")


def commands() -> Sequence[str]:
    """Return each command of a fenced block, and each in inline code that starts with a program of ``.venv``."""
    found = [(match.start(), line) for match in _FENCE.finditer(TEXT) for line in _lines(match)]
    outside = _FENCE.sub(lambda match: " " * len(match[0]), TEXT)
    found += [(match.start(), match[1]) for match in _INLINE.finditer(outside)]
    return [line for _, line in sorted(found, key=lambda item: item[0])]


def named_commands() -> set[str]:
    """Return the commands of `charioteer` that are named in inline code."""
    return set(_COMMAND_NAME.findall(TEXT))


def named_targets() -> set[str]:
    """Return the targets of the Makefile that are named in inline code."""
    return set(_TARGET.findall(TEXT))


def _lines(block: re.Match[str]) -> Iterator[str]:
    match block["language"]:
        case "text":
            return
        case "console":
            yield from re.findall(r"^\$ (.*)$", block["content"], re.MULTILINE)
        case "sh" if "<<" in block["content"]:
            yield block["content"]
        case "sh":
            yield from filter(None, block["content"].replace("\\\n", " ").splitlines())
        case other:
            raise AssertionError(f"README.md has a block of {other!r}: expected sh, console or text")
