"""Read and look up the keys in a file of key digests."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated

import msgspec

from app.core.engine.scheduling.token_bucket import make_rate
from app.core.protocols.protocol import Permission
from app.core.server.auth.credentials import Identity, unauthenticated
from app.core.settings.server import SettingsError

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


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

    Raise SettingsError if the content is invalid, or two keys share a name or a digest.
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
            raise SettingsError(f"{key.name}: expected infer, read, label or admin, got open, which needs no key")
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
        """Return the identity of a key. Raise UNAUTHENTICATED if the key is unknown or has expired."""
        # The timing of the lookup reveals only the digest, from which the key cannot be derived.
        found = self._keys.get(digest_of(credential))
        if found is None:
            raise unauthenticated("unknown", "The key is not known here")
        key, identity = found
        if key.not_after is not None and self._clock() > key.not_after:
            raise unauthenticated("expired", f"The key was good until {key.not_after.isoformat()}")
        return identity
