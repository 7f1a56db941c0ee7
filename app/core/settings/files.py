"""Reading regular files, and writing files in one step."""

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

READABLE_BY_ALL = 0o644
"""Permissions of a file that a server of another user reads."""


def read_regular_file(path: Path, max_bytes: int | None = None) -> bytes:
    """Return the content of a regular file.

    Raise OSError if it cannot be read, for pipes and devices, whose end might never come, and beyond `max_bytes` bytes.
    """
    # Opening a pipe would block until a writer opens it. Check the open descriptor: the path may change meanwhile.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        if max_bytes is not None and status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than {max_bytes:,}")
        return file.read(max_bytes)


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
    except OSError as error:
        # People do not know the name of the temporary file.
        if error.filename is not None:
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        temporary.unlink(missing_ok=True)
