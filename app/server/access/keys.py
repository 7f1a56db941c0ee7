"""Keys: a file of their digests, and looking one up."""

import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated

import msgspec

from app.protocols.permission import Permission
from app.server.access.credentials import unauthenticated
from app.server.access.identity import Identity, Rate
from app.settings.server import SettingsError

__all__ = ("Key", "Keys", "digest_of", "read_keys")

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One key as the file has it. The key itself is nowhere but with its owner.

    Attributes:
        name: whose it is, as logs call them.
        sha256: of the key's UTF-8, in hexadecimal. A key is random, 256 bits, so that no slower digest is needed.
        permissions: what it is good for.
        requests_per_second: how often it may be used; None for as often as any.
        burst: so many of them at once; as many as in a second when None.
        not_after: until when it is good; for ever when None.
    """

    name: Annotated[str, msgspec.Meta(pattern=_NAME)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    permissions: Annotated[tuple[Permission, ...], msgspec.Meta(min_length=1)]
    requests_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    not_after: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


def digest_of(key: str) -> bytes:
    """What is kept of a key in its place."""
    return sha256(key.encode(errors="surrogatepass")).digest()


def read_keys(content: bytes) -> Sequence[Key]:
    """The keys of a file, a JSON list.

    Raises:
        SettingsError: for what is not one, and for two keys of one name, or of one digest.
    """
    try:
        found = msgspec.json.decode(content, type=list[Key])
    except msgspec.DecodeError as error:
        # Nothing of the file is in the message.
        raise SettingsError(f"Expected a JSON list of keys, as `charioteer keys add` makes it: {error}") from None
    except (UnicodeDecodeError, RecursionError):
        raise SettingsError("Expected a JSON list of keys, as `charioteer keys add` makes it") from None
    for what, values in (("name", [each.name for each in found]), ("sha256", [each.sha256 for each in found])):
        if len(set(values)) < len(values):
            raise SettingsError(f"Expected every {what} once")
    for each in found:
        if "open" in each.permissions:
            raise SettingsError(f"{each.name}: expected infer, read or admin, got open, which needs no key")
        if each.burst is not None and each.requests_per_second is None:
            raise SettingsError(f"{each.name}: burst needs requests_per_second")
    return found


class Keys:
    """Keys by their digests.

    Args:
        keys: as the file has them.
        clock: tells the time.
    """

    def __init__(self, keys: Sequence[Key], clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._keys: Mapping[bytes, tuple[bytes, Key, Identity]] = {
            digest: (digest, each, _identity(each)) for each in keys for digest in (bytes.fromhex(each.sha256),)
        }
        self._clock = clock

    def identify(self, credential: str) -> Identity:
        """Whose key `credential` is.

        Raises:
            AccessError: UNAUTHENTICATED when it is nobody's, or no longer good.
        """
        # What looking a digest up takes tells of the digest, from which no key follows.
        shown = digest_of(credential)
        digest, key, identity = self._keys.get(shown, (b"", None, None))
        if key is None or identity is None or not hmac.compare_digest(digest, shown):
            raise unauthenticated("unknown", "The key is not known here")
        if key.not_after is not None and self._clock() > key.not_after:
            raise unauthenticated("expired", f"The key was good until {key.not_after.isoformat()}")
        return identity


def _identity(key: Key) -> Identity:
    rate = None
    if key.requests_per_second is not None:
        rate = Rate(per_second=key.requests_per_second, burst=key.burst or max(1, round(key.requests_per_second)))
    return Identity(name=key.name, permissions=frozenset(key.permissions), rate=rate)
