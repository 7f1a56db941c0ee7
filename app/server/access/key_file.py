"""Changing a file of keys: nobody ever sees half of one, and two who change it take turns."""

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from app.server.access.keys import Key, digest_of, read_keys
from app.settings.server import SettingsError

__all__ = ("add_key", "keys_of", "new_key", "remove_key")

_PREFIX = "charioteer_"
_BYTES = 32
_PRIVATE = 0o600
_WRITABLE_BY_OTHERS = 0o022


def new_key() -> str:
    """A key of 256 random bits. What it begins with lets scanners find it where it should not be."""
    return f"{_PREFIX}{secrets.token_urlsafe(_BYTES)}"


def keys_of(path: Path) -> Sequence[Key]:
    """The keys in a file.

    Raises:
        SettingsError: when it is no such file, or cannot be read.
    """
    try:
        return read_keys(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def add_key(path: Path, key: str, described: Key) -> None:
    """Put a key into a file, which is made where there is none.

    Args:
        path: the file.
        key: itself.
        described: what the file is to say of it; its digest is filled in.

    Raises:
        SettingsError: when there is one of that name, the result would be no file of keys, or it cannot be written.
    """
    with _changing(path) as found:
        if any(each.name == described.name for each in found):
            raise SettingsError(f"{path} has a key called {described.name}; remove it first, or choose another name")
        found.append(msgspec.structs.replace(described, sha256=digest_of(key).hex()))


def remove_key(path: Path, name: str) -> None:
    """Take a key out of a file.

    Raises:
        SettingsError: when there is none of that name, or it cannot be written.
    """
    with _changing(path) as found:
        known = ", ".join(each.name for each in found) or "none"
        left = [each for each in found if each.name != name]
        if len(left) == len(found):
            raise SettingsError(f"{path} has no key called {name}; it has {known}")
        found[:] = left


@contextmanager
def _changing(path: Path) -> Generator[list[Key]]:
    """The keys of a file, to be changed; at the end they are written."""
    # Where a link leads, so that the link stays.
    path = path.resolve()
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            found = list(keys_of(path)) if path.exists() else []
            yield found
            content = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
            read_keys(content)
            _replace(path, content)
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None


def _replace(path: Path, content: bytes) -> None:
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    written = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            if path.exists():
                _take_over(path.stat(), number)
            file.flush()
            os.fsync(number)
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _take_over(status: os.stat_result, number: int) -> None:
    """Let those read it who could, which a server of another user may have been given."""
    with contextlib.suppress(PermissionError):
        os.fchown(number, status.st_uid, status.st_gid)
    os.fchmod(number, (stat.S_IMODE(status.st_mode) & ~_WRITABLE_BY_OTHERS) | _PRIVATE)
