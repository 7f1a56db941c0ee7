"""Read request headers from options and files, such as credentials for a gateway."""

import re
from collections.abc import Sequence
from pathlib import Path

_HEADER = re.compile(r"\s*([\w!#$%&'*+.^`|~-]+)\s*:([\t -~]*)", re.ASCII)
"""RFC 9110, 5.6.2 and 5.5, in ASCII."""


class HeaderError(Exception):
    """A line is not a valid header. The message does not quote it, because it can be a secret."""


def read_headers(lines: Sequence[str], file: Path | None = None) -> dict[str, str]:
    """Return header values by lower-case name.

    Args:
        lines: "Name: value" lines from options.
        file: a file of such lines, so that secrets do not show in the process list; it overrides `lines`.

    Raises:
        HeaderError: a line is not a valid header, or the file cannot be read.
    """
    headers = _parse_headers(lines, "--header")
    if file is None:
        return headers
    try:
        file_lines = file.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "Expected ASCII"
        raise HeaderError(f"--header-file: {file}: {reason}") from None
    return {**headers, **_parse_headers([line for line in file_lines if line.strip()], f"--header-file: {file}")}


def _parse_headers(lines: Sequence[str], option: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match = _HEADER.fullmatch(line)
        if not match:
            raise HeaderError(f'{option}: Expected "Name: value" in line {number}')
        headers[match[1].lower()] = match[2].strip()
    return headers
