"""What a gate before a server asks of its callers."""

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ("GateError", "gate_headers")

_HEADER = re.compile(r"\s*([\w!#$%&'*+.^`|~-]+)\s*:([\t -~]*)", re.ASCII)
"""RFC 9110, 5.6.2 and 5.5, in ASCII."""


class GateError(Exception):
    """Lines that are no headers. They may be secrets all the same, and are not shown."""


def gate_headers(lines: Sequence[str], file: Path | None = None) -> dict[str, str]:
    """Headers by their names in lower case.

    Args:
        lines: "Name: value" each, as options give them.
        file: with such lines, for what nobody is to read in a list of processes; goes before `lines`.

    Raises:
        GateError: when a line is no header, or the file cannot be read.
    """
    read = _headers(lines, "--header")
    if file is None:
        return read
    try:
        found = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "Expected ASCII"
        raise GateError(f"--header-file: {file}: {why}") from None
    return {**read, **_headers([each for each in found if each.strip()], f"--header-file: {file}")}


def _headers(lines: Sequence[str], option: str) -> dict[str, str]:
    read: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        found = _HEADER.fullmatch(line)
        if not found:
            raise GateError(f'{option}: Expected "Name: value" in line {number}')
        read[found[1].lower()] = found[2].strip()
    return read
