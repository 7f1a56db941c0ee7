"""Validate JSON Web Tokens (RFC 7519) of one issuer with its public keys, by PyJWT."""

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
"""Tolerated difference in seconds between the clocks of issuer and server."""

_MAX_CACHED = 4096
_MIN_RSA_BITS = 2048
_ALGORITHMS: Mapping[tuple[str, str], Sequence[str]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""Algorithms by key type and curve. A key with an `alg` is used for that one only."""

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
    """A public key of a key set, with its id and its algorithms."""

    def __init__(self, name: str | None, key: Any, algorithms: Sequence[str]) -> None:
        self.name = name
        self.key = key
        self.algorithms = algorithms


def read_key_set(content: bytes) -> Sequence[PublicKey]:
    """Return the public keys of a JSON Web Key Set (RFC 7517) that can verify signatures.

    Raises:
        SettingsError: if the key set is invalid, has no usable key, or contains a secret.
    """
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise SettingsError('Expected a JSON Web Key Set, {"keys": [...]}') from None
    listed = cast("dict[str, Any]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise SettingsError('Expected a JSON Web Key Set, {"keys": [...]}')
    given = [cast("dict[str, Any]", item) for item in cast("list[Any]", listed) if isinstance(item, dict)]
    found = [key for described in given if (key := _public_key(described)) is not None]
    if not found:
        raise SettingsError("Expected a public key of RSA, P-256, P-384, P-521 or Ed25519 in the key set, got none")
    names = [key.name for key in found]
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
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == wanted)
    if not algorithms:
        return None
    try:
        key: Any = jwt.PyJWK(dict(described), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise SettingsError(f"The key set has a {kind} key that cannot be read") from None
    if kind == "RSA" and key.key_size < _MIN_RSA_BITS:
        raise SettingsError(f"Expected RSA keys of {_MIN_RSA_BITS} bits or more, got one of {key.key_size}")
    return PublicKey(name if isinstance(name, str) else None, key, algorithms)


class Tokens:
    """Validate tokens, and cache valid ones: verifying a signature is slower than a cache lookup.

    Args:
        keys: public keys of the issuer.
        issuer: required value of `iss`.
        audience: required value of `aud`, or one of its values.
        clock: returns seconds since the epoch.
        remembered: maximum number of cached tokens; a full cache is cleared.
    """

    def __init__(
        self,
        keys: Sequence[PublicKey],
        issuer: str,
        audience: str,
        *,
        clock: Callable[[], float] = time.time,
        remembered: int = _MAX_CACHED,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._clock = clock
        self._max_cached = remembered
        self._cache: dict[bytes, tuple[Identity, float]] = {}

    def identify(self, credential: str) -> Identity:
        """Return the identity of a token.

        Raises:
            AccessError: UNAUTHENTICATED with the reason, if the token is not valid.
        """
        digest = sha256(credential.encode(errors="surrogatepass")).digest()
        identity, until = self._cache.get(digest, (None, 0.0))
        if identity is not None and self._clock() < until:
            return identity
        claims = self._read(credential)
        identity = Identity(name=f"jwt:{shortened(claims['sub'], 200)}", permissions=_permissions(claims))
        if len(self._cache) >= self._max_cached:
            self._cache.clear()
        self._cache[digest] = identity, float(claims["exp"]) + _LEEWAY
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
                # All clients without a subject would share one identity.
                raise _rejected("its sub is empty")
            return claims
        except AccessError:
            raise
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            fault = next((text for kind, text in _FAULTS if isinstance(error, kind)), "it is no JSON Web Token")
            raise _rejected(fault) from None

    def _key_of(self, header: Mapping[str, Any]) -> PublicKey:
        name = header.get("kid")
        only = self._keys[0] if len(self._keys) == 1 else None
        if only is not None and (name is None or only.name is None):
            return only
        for key in self._keys:
            if name is not None and key.name == name:
                return key
        raise _rejected("its kid names no key of the issuer")


def _rejected(fault: str) -> AccessError:
    return unauthenticated("token", f"The token is not taken: {fault}")


def _permissions(claims: Mapping[str, Any]) -> frozenset[Permission]:
    """Return the permissions in the scopes of a token: `scope` of RFC 8693, or `scp`, as text or as a list."""
    given: list[str] = []
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            given += value.split()
        elif isinstance(value, list):
            given += [item for item in cast("list[Any]", value) if isinstance(item, str)]
    scopes = {scope.removeprefix(_PREFIX) for scope in given}
    return frozenset(permission for permission in PERMISSIONS if permission in scopes)
