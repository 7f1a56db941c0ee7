"""Read, look up and change the keys in a file of key digests."""

import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec

from app.core.protocols.protocol import Permission
from app.core.server.auth.credentials import Identity, make_rate, unauthenticated
from app.core.server.auth.watched_file import read_file
from app.core.settings.files import replacing_file
from app.core.settings.server import SettingsError

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_PREFIX = "charioteer_"
_BYTES = 32
_PRIVATE = 0o600
_WRITABLE_BY_OTHERS = 0o022


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of the key file. The file never contains the key itself.

    Attributes:
        name: name of the client, as in logs.
        sha256: digest of the key's UTF-8, hexadecimal. Keys are 256 random bits, so a slow digest is unnecessary.
        requests_per_second: rate limit; None for the default.
        burst: maximum number of requests at once; None for the number in one second.
        not_after: time of expiry; None for a key that does not expire.
    """

    name: Annotated[str, msgspec.Meta(pattern=_NAME)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    permissions: Annotated[tuple[Permission, ...], msgspec.Meta(min_length=1)]
    requests_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    not_after: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


def digest_of(key: str) -> bytes:
    """Return the SHA-256 digest of a key."""
    return sha256(key.encode(errors="surrogatepass")).digest()


def read_keys(content: bytes) -> Sequence[ApiKey]:
    """Parse the content of a key file, a JSON list.

    Raises:
        SettingsError: if the content is invalid, or two keys share a name or a digest.
    """
    try:
        keys = msgspec.json.decode(content, type=list[ApiKey])
    except msgspec.DecodeError as error:
        # The message of msgspec contains no content of the file.
        raise SettingsError(f"Expected a JSON list of keys, as `charioteer keys add` makes it: {error}") from None
    except (UnicodeDecodeError, RecursionError):
        raise SettingsError("Expected a JSON list of keys, as `charioteer keys add` makes it") from None
    for field, values in (("name", [key.name for key in keys]), ("sha256", [key.sha256 for key in keys])):
        if len(set(values)) < len(values):
            raise SettingsError(f"Expected every {field} once")
    for key in keys:
        if "open" in key.permissions:
            raise SettingsError(f"{key.name}: expected infer, read or admin, got open, which needs no key")
        if key.burst is not None and key.requests_per_second is None:
            raise SettingsError(f"{key.name}: burst needs requests_per_second")
    return keys


class ApiKeys:
    """Look keys up by their digests."""

    def __init__(self, keys: Sequence[ApiKey], clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._keys: dict[bytes, tuple[ApiKey, Identity]] = {}
        for key in keys:
            rate = make_rate(key.requests_per_second, key.burst)
            identity = Identity(name=key.name, permissions=frozenset(key.permissions), rate=rate)
            self._keys[bytes.fromhex(key.sha256)] = key, identity
        self._clock = clock

    def identify(self, credential: str) -> Identity:
        """Return the identity of a key.

        Raises:
            AccessError: UNAUTHENTICATED if the key is unknown or has expired.
        """
        # The timing of the lookup reveals only the digest, from which the key cannot be derived.
        found = self._keys.get(digest_of(credential))
        if found is None:
            raise unauthenticated("unknown", "The key is not known here")
        key, identity = found
        if key.not_after is not None and self._clock() > key.not_after:
            raise unauthenticated("expired", f"The key was good until {key.not_after.isoformat()}")
        return identity


def new_key() -> str:
    """Return a key of 256 random bits. Its prefix lets secret scanners find leaked keys."""
    return f"{_PREFIX}{secrets.token_urlsafe(_BYTES)}"


def load_keys(path: Path) -> Sequence[ApiKey]:
    """Return the keys in a file.

    Raises:
        SettingsError: if the file is invalid or not readable.
    """
    return read_file(path, read_keys)


def add_key(path: Path, key: str, entry: ApiKey) -> None:
    """Add a key to a file; create the file if it does not exist.

    Raises:
        SettingsError: if the name is in use, or the result is invalid or not writable.
    """
    with _edited_keys(path) as keys:
        if any(existing_key.name == entry.name for existing_key in keys):
            raise SettingsError(f"{path} has a key called {entry.name}; remove it first, or choose another name")
        keys.append(msgspec.structs.replace(entry, sha256=digest_of(key).hex()))


def remove_key(path: Path, name: str) -> None:
    """Remove a key from a file.

    Raises:
        SettingsError: if no key has that name, or the file is not writable.
    """
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
            keys = list(load_keys(path)) if path.exists() else []
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
