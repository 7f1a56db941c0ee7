"""Validate JSON Web Tokens (RFC 7519) of one issuer with its public keys, by PyJWT."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple, cast

import jwt
import msgspec

from app.core.protocols.protocol import PERMISSIONS, Permission
from app.core.server.auth.credentials import AccessError, Identity, unauthenticated
from app.core.settings.server import SettingsError
from tasks.inference.error import truncate

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

_SCOPE_PREFIX = "charioteer:"

_FAULTS: Sequence[tuple[type[Exception], str]] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not good yet"),
    (jwt.InvalidAudienceError, "it is for another audience"),
    (jwt.InvalidIssuerError, "it is of another issuer"),
    (jwt.MissingRequiredClaimError, "it lacks one of exp, iss, aud and sub"),
    (jwt.InvalidAlgorithmError, "its algorithm is not one that its key is for"),
    (jwt.InvalidSignatureError, "its signature does not fit"),
)


class PublicKey(NamedTuple):
    """A public key of a key set, with its id and its algorithms."""

    key_id: str | None
    key: Any
    algorithms: Sequence[str]


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


def read_key_set(content: bytes) -> Sequence[PublicKey]:
    """Return the public keys of a JSON Web Key Set (RFC 7517) that can verify signatures.

    Raise SettingsError if the key set is invalid, has no usable key, or contains a secret.
    """
    try:
        entries = msgspec.json.decode(content, type=_KeySet).keys
    except (ValueError, RecursionError):
        raise SettingsError('Expected a JSON Web Key Set, {"keys": [...]}') from None
    keys = [key for entry in entries if (key := _public_key(entry)) is not None]
    if not keys:
        raise SettingsError("Expected a public key of RSA, P-256, P-384, P-521 or Ed25519 in the key set, got none")
    key_ids = [key.key_id for key in keys]
    if len(keys) > 1 and (None in key_ids or len(set(key_ids)) < len(key_ids)):
        raise SettingsError("Expected every one of several keys to have a kid of its own")
    return keys


def _public_key(entry: Mapping[str, Any]) -> PublicKey | None:
    key_type, curve = str(entry.get("kty", "")), str(entry.get("crv", ""))
    if key_type == "oct" or "d" in entry:
        raise SettingsError("The key set has a secret in it; only the public keys belong here")
    algorithms = _ALGORITHMS.get((key_type, curve if key_type != "RSA" else ""))
    if algorithms is None or entry.get("use", "sig") != "sig":
        return None
    declared_algorithm, key_id = entry.get("alg"), entry.get("kid")
    if declared_algorithm is not None:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == declared_algorithm)
    if not algorithms:
        return None
    try:
        key: Any = jwt.PyJWK(dict(entry), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise SettingsError(f"The key set has a {key_type} key that cannot be read") from None
    if key_type == "RSA" and key.key_size < _MIN_RSA_BITS:
        raise SettingsError(f"Expected RSA keys of {_MIN_RSA_BITS} bits or more, got one of {key.key_size}")
    return PublicKey(key_id if isinstance(key_id, str) else None, key, algorithms)


@dataclass(frozen=True)
class JwtValidator:
    """Validate tokens, and cache valid ones: verifying a signature is slower than a cache lookup.

    The audience is `aud`, or one of its values. A full cache is cleared.
    """

    keys: Sequence[PublicKey]
    issuer: str
    audience: str
    clock: Callable[[], float] = time.time
    max_cached: int = _MAX_CACHED
    _cache: dict[bytes, tuple[Identity, float]] = field(default_factory=dict[bytes, tuple[Identity, float]], init=False)

    def identify(self, credential: str) -> Identity:
        """Return the identity of a token. Raise UNAUTHENTICATED with the reason, if the token is not valid."""
        digest = sha256(credential.encode(errors="surrogatepass")).digest()
        identity, valid_until = self._cache.get(digest, (None, 0.0))
        if identity is not None and self.clock() < valid_until:
            return identity
        claims = self._decode(credential)
        identity = Identity(name=f"jwt:{truncate(claims['sub'], 200)}", permissions=_permissions(claims))
        if len(self._cache) >= self.max_cached:
            self._cache.clear()
        self._cache[digest] = identity, float(claims["exp"]) + _LEEWAY
        return identity

    def _decode(self, token: str) -> Mapping[str, Any]:
        try:
            key = self._find_key(jwt.get_unverified_header(token))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                issuer=self.issuer,
                audience=self.audience,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            # A lone surrogate could not be written into answers: encoding raises a ValueError.
            if not claims["sub"].encode():
                # All clients without a subject would share one identity.
                raise _invalid_token("its sub is empty")
            return claims
        except AccessError:
            raise
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            fault = next(
                (text for error_type, text in _FAULTS if isinstance(error, error_type)), "it is no valid JSON Web Token"
            )
            raise _invalid_token(fault) from None

    def _find_key(self, header: Mapping[str, Any]) -> PublicKey:
        key_id = header.get("kid")
        if len(self.keys) == 1 and (key_id is None or self.keys[0].key_id is None):
            return self.keys[0]
        for key in self.keys:
            if key_id is not None and key.key_id == key_id:
                return key
        raise _invalid_token("its kid names no key of the issuer")


def _invalid_token(fault: str) -> AccessError:
    return unauthenticated("token", f"The token is not taken: {fault}")


def _permissions(claims: Mapping[str, Any]) -> frozenset[Permission]:
    """Return the permissions in the scopes of a token: `scope` of RFC 8693, or `scp`, as text or as a list."""
    scope_names: list[str] = []
    for name in ("scope", "scp"):
        value = claims.get(name)
        if isinstance(value, str):
            scope_names += value.split()
        elif isinstance(value, list):
            scope_names += [item for item in cast("list[Any]", value) if isinstance(item, str)]
    scopes = {scope.removeprefix(_SCOPE_PREFIX) for scope in scope_names}
    return frozenset(permission for permission in PERMISSIONS if permission in scopes)
