"""Add keys to a file of key digests, and remove them."""

import fcntl
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from app.core.server.auth.api_keys import ApiKey, digest_of, read_keys
from app.core.server.auth.watched_file import read_file
from app.core.settings.files import replacing_file
from app.core.settings.server import SettingsError

_PREFIX = "charioteer_"
_BYTES = 32
_PRIVATE = 0o600
_WRITABLE_BY_OTHERS = 0o022


def new_key() -> str:
    """Return a key of 256 random bits. Its prefix lets secret scanners find leaked keys."""
    return f"{_PREFIX}{secrets.token_urlsafe(_BYTES)}"


def add_key(path: Path, key: str, entry: ApiKey) -> None:
    """Add a key to a file; create the file if it does not exist.

    Raise SettingsError if the name is in use, or the result is invalid or not writable.
    """
    with _edited_keys(path) as keys:
        if any(existing_key.name == entry.name for existing_key in keys):
            raise SettingsError(f"{path} has a key called {entry.name}; remove it first, or choose another name")
        keys.append(msgspec.structs.replace(entry, sha256=digest_of(key).hex()))


def remove_key(path: Path, name: str) -> None:
    """Remove a key from a file. Raise SettingsError if no key has that name, or the file is missing or not writable."""
    if not path.exists():
        raise SettingsError(f"There is no file {path}")
    with _edited_keys(path) as keys:
        known_names = ", ".join(key.name for key in keys) or "none"
        remaining = [key for key in keys if key.name != name]
        if len(remaining) == len(keys):
            raise SettingsError(f"{path} has no key called {name}; it has {known_names}")
        keys[:] = remaining


@contextmanager
def _edited_keys(path: Path) -> Generator[list[ApiKey]]:
    """Yield the keys of a file for changes, and write them at the end."""
    # Replace the target of a symbolic link, so that the link stays.
    path = path.resolve()
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            keys = list(read_file(path, read_keys)) if path.exists() else []
            yield keys
            content = msgspec.json.format(msgspec.json.encode(keys), indent=2) + b"\n"
            read_keys(content)
            _replace(path, content)
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None


def _replace(path: Path, content: bytes) -> None:
    with replacing_file(path, _PRIVATE) as file:
        if path.exists():
            # Keep the owner and the readers of the file: the server may run as another user.
            status = path.stat()
            with suppress(PermissionError):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), (stat.S_IMODE(status.st_mode) & ~_WRITABLE_BY_OTHERS) | _PRIVATE)
        file.write(content)
