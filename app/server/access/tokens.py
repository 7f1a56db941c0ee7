"""Tokens: JSON Web Tokens (RFC 7519) of one issuer, signed with keys that are public. PyJWT reads them."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import jwt

from app.protocols.permission import PERMISSIONS, Permission
from app.server.access.credentials import unauthenticated
from app.server.access.identity import AccessError, Identity
from app.settings.server import SettingsError
from tasks.exchange.error import shortened

__all__ = ("Tokens", "read_key_set")

_LEEWAY = 10
"""Seconds that the clocks of issuer and server may differ."""

_KNOWN_AT_MOST = 4096
_LEAST_RSA_BITS = 2048
_ALGORITHMS: Mapping[tuple[str, str], Sequence[str]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By type and curve. A key that says which one it is for is good for that one alone."""

_PREFIX = "charioteer:"

_FAULTS: Sequence[tuple[type[Exception], str]] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not good yet"),
    (jwt.InvalidAudienceError, "it is for another audience"),
    (jwt.InvalidIssuerError, "it is of another issuer"),
    (jwt.MissingRequiredClaimError, "it lacks one of exp, iss, aud and sub"),
    (jwt.InvalidAlgorithmError, "its algorithm is not one that its key is for"),
    (jwt.InvalidSignatureError, "its signature does not fit"),
)


class PublicKey:
    """One key of a key set: how it is called, what it is, and what it is good for."""

    def __init__(self, name: str | None, key: Any, algorithms: Sequence[str]) -> None:
        self.name = name
        self.key = key
        self.algorithms = algorithms


def read_key_set(content: bytes) -> Sequence[PublicKey]:
    """The public keys of a JSON Web Key Set (RFC 7517) that signatures can be checked with.

    Raises:
        SettingsError: for what is no key set, has no such key, or has a secret in it.
    """
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise SettingsError('Expected a JSON Web Key Set, {"keys": [...]}') from None
    listed = cast("dict[str, Any]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise SettingsError('Expected a JSON Web Key Set, {"keys": [...]}')
    given = [cast("dict[str, Any]", each) for each in cast("list[Any]", listed) if isinstance(each, dict)]
    found = [key for each in given if (key := _public_key(each)) is not None]
    if not found:
        raise SettingsError("Expected a public key of RSA, P-256, P-384, P-521 or Ed25519 in the key set, got none")
    names = [each.name for each in found]
    if len(found) > 1 and (None in names or len(set(names)) < len(names)):
        raise SettingsError("Expected every one of several keys to have a kid of its own")
    return found


def _public_key(described: Mapping[str, Any]) -> PublicKey | None:
    kind, curve = str(described.get("kty", "")), str(described.get("crv", ""))
    if kind == "oct" or "d" in described:
        raise SettingsError("The key set has a secret in it; only the public keys belong here")
    algorithms = _ALGORITHMS.get((kind, curve if kind != "RSA" else ""))
    if algorithms is None or described.get("use", "sig") != "sig":
        return None
    wanted, name = described.get("alg"), described.get("kid")
    if wanted is not None:
        algorithms = tuple(each for each in algorithms if each == wanted)
    if not algorithms:
        return None
    try:
        key: Any = jwt.PyJWK(dict(described), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise SettingsError(f"The key set has a {kind} key that cannot be read") from None
    if kind == "RSA" and key.key_size < _LEAST_RSA_BITS:
        raise SettingsError(f"Expected RSA keys of {_LEAST_RSA_BITS} bits or more, got one of {key.key_size}")
    return PublicKey(name if isinstance(name, str) else None, key, algorithms)


class Tokens:
    """Reads tokens, and remembers those that it has read: a signature takes longer to check than a key to look up.

    Args:
        keys: of who issues them.
        issuer: what they have as `iss`.
        audience: what they have as `aud`, or among it.
        clock: seconds since 1970.
        remembered: so many tokens at most; then it begins anew.
    """

    def __init__(
        self,
        keys: Sequence[PublicKey],
        issuer: str,
        audience: str,
        *,
        clock: Callable[[], float] = time.time,
        remembered: int = _KNOWN_AT_MOST,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._remembered = remembered
        self._known: dict[bytes, tuple[Identity, float]] = {}

    def identify(self, credential: str) -> Identity:
        """Whose token `credential` is.

        Raises:
            AccessError: UNAUTHENTICATED when it is not taken, with the reason.
        """
        digest = sha256(credential.encode(errors="surrogatepass")).digest()
        identity, until = self._known.get(digest, (None, 0.0))
        if identity is not None and self._clock() < until:
            return identity
        claims = self._read(credential)
        identity = Identity(name=f"jwt:{shortened(claims['sub'], 200)}", permissions=_permissions(claims))
        if len(self._known) >= self._remembered:
            self._known.clear()
        self._known[digest] = identity, float(claims["exp"]) + _LEEWAY
        return identity

    def _read(self, token: str) -> Mapping[str, Any]:
        try:
            key = self._key_of(jwt.get_unverified_header(token))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                issuer=self._issuer,
                audience=self._audience,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            if not claims["sub"]:
                # Whoever has none would be one caller.
                raise _not_taken("its sub is empty")
            return claims
        except AccessError:
            raise
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            fault = next((each for kind, each in _FAULTS if isinstance(error, kind)), "it is no JSON Web Token")
            raise _not_taken(fault) from None

    def _key_of(self, header: Mapping[str, Any]) -> PublicKey:
        name = header.get("kid")
        only = self._keys[0] if len(self._keys) == 1 else None
        if only is not None and (name is None or only.name is None):
            return only
        for each in self._keys:
            if name is not None and each.name == name:
                return each
        raise _not_taken("its kid names no key of the issuer")


def _not_taken(fault: str) -> AccessError:
    return unauthenticated("token", f"The token is not taken: {fault}")


def _permissions(claims: Mapping[str, Any]) -> frozenset[Permission]:
    """What the scopes of a token allow: `scope` as RFC 8693 has it, or `scp`, as text or as a list."""
    given: list[str] = []
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            given += value.split()
        elif isinstance(value, list):
            given += [each for each in cast("list[Any]", value) if isinstance(each, str)]
    scopes = {each.removeprefix(_PREFIX) for each in given}
    return frozenset(each for each in PERMISSIONS if each in scopes)
