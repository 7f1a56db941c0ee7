"""Files that are written in one step."""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

READABLE_BY_ALL = 0o644
"""Permissions of a file that a server of another user reads."""


@contextmanager
def replacing_file(path: Path, mode: int | None = None) -> Generator[BinaryIO]:
    """Yield a new file that replaces `path` in one step at the end. After an error, `path` stays as it was.

    The folder must exist. Without `mode`, the new file has the permissions of the umask. Raise OSError when the file
    cannot be written.
    """
    # The name is hidden from polled folders, and random, so that an untrusted folder cannot hold a link of this name.
    temporary = path.with_name(f".charioteer-{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
