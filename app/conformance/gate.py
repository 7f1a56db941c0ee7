"""Read request headers from options and files, such as credentials for a gateway."""

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ("GateError", "gate_headers")

_HEADER = re.compile(r"\s*([\w!#$%&'*+.^`|~-]+)\s*:([\t -~]*)", re.ASCII)
"""RFC 9110, 5.6.2 and 5.5, in ASCII."""


class GateError(Exception):
    """A line is not a valid header. The message does not quote it, because it can be a secret."""


def gate_headers(lines: Sequence[str], file: Path | None = None) -> dict[str, str]:
    """Return header values by lower-case name.

    Args:
        lines: "Name: value" lines from options.
        file: a file of such lines, so that secrets do not show in the process list; it overrides `lines`.

    Raises:
        GateError: a line is not a valid header, or the file cannot be read.
    """
    read = _headers(lines, "--header")
    if file is None:
        return read
    try:
        found = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "Expected ASCII"
        raise GateError(f"--header-file: {file}: {why}") from None
    return {**read, **_headers([line for line in found if line.strip()], f"--header-file: {file}")}


def _headers(lines: Sequence[str], option: str) -> dict[str, str]:
    read: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        found = _HEADER.fullmatch(line)
        if not found:
            raise GateError(f'{option}: Expected "Name: value" in line {number}')
        read[found[1].lower()] = found[2].strip()
    return read
