"""Change a file of keys atomically, with a lock against concurrent changes."""

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
    """Return a key of 256 random bits. Its prefix lets secret scanners find leaked keys."""
    return f"{_PREFIX}{secrets.token_urlsafe(_BYTES)}"


def keys_of(path: Path) -> Sequence[Key]:
    """Return the keys in a file.

    Raises:
        SettingsError: if the file is invalid or not readable.
    """
    try:
        return read_keys(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def add_key(path: Path, key: str, described: Key) -> None:
    """Add a key to a file; create the file if it does not exist.

    Args:
        path: the file.
        key: the secret key.
        described: the entry for the file, without the digest.

    Raises:
        SettingsError: if the name is in use, or the result is invalid or not writable.
    """
    with _changing(path) as found:
        if any(known.name == described.name for known in found):
            raise SettingsError(f"{path} has a key called {described.name}; remove it first, or choose another name")
        found.append(msgspec.structs.replace(described, sha256=digest_of(key).hex()))


def remove_key(path: Path, name: str) -> None:
    """Remove a key from a file.

    Raises:
        SettingsError: if no key has that name, or the file is not writable.
    """
    with _changing(path) as found:
        known = ", ".join(key.name for key in found) or "none"
        left = [key for key in found if key.name != name]
        if len(left) == len(found):
            raise SettingsError(f"{path} has no key called {name}; it has {known}")
        found[:] = left


@contextmanager
def _changing(path: Path) -> Generator[list[Key]]:
    """Yield the keys of a file for changes, and write them at the end."""
    # Replace the target of a symbolic link, so that the link stays.
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
                _copy_permissions(path.stat(), number)
            file.flush()
            os.fsync(number)
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _copy_permissions(status: os.stat_result, number: int) -> None:
    """Keep the owner and the readers of the file: the server may run as another user."""
    with contextlib.suppress(PermissionError):
        os.fchown(number, status.st_uid, status.st_gid)
    os.fchmod(number, (stat.S_IMODE(status.st_mode) & ~_WRITABLE_BY_OTHERS) | _PRIVATE)
