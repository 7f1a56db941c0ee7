"""Issue test tokens, valid and forged, with keys of several types."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "charioteer"

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
STRANGER = ec.generate_private_key(ec.SECP256R1())
"""A key that is not in the key set."""


def jwk(key: Any, **extra: Any) -> dict[str, Any]:
    """Return the public half of `key` as a JSON Web Key."""
    kind: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else OKPAlgorithm
    kind = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else kind
    public_key = json.loads(kind.to_jwk(key.public_key()))
    return {**{name: value for name, value in public_key.items() if name not in ("key_ops", "alg")}, **extra}


KEY_SET = {"keys": [jwk(RSA, kid="rsa", alg="RS256", use="sig"), jwk(EC, kid="ec"), jwk(ED, kid="ed")]}


def key_set_file(folder: Path) -> Path:
    path = folder / "jwks.json"
    path.write_text(json.dumps(KEY_SET))
    return path


def claims(**extra: Any) -> dict[str, Any]:
    """Return the claims of a valid token; None omits a claim."""
    expires = int(time.time()) + 300
    values = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": expires, "scope": "infer read", **extra}
    return {name: value for name, value in values.items() if value is not None}


def token(
    token_claims: dict[str, Any] | None = None, *, key: Any = EC, algorithm: str = "ES256", **headers: Any
) -> str:
    return jwt.encode(token_claims or claims(), key, algorithm=algorithm, headers={"kid": "ec", **headers})


def forged(header: dict[str, Any] | bytes, payload: Any, signature: bytes = b"") -> str:
    """Return a token with any header, payload and signature."""
    parts = [json.dumps(part).encode() if not isinstance(part, bytes) else part for part in (header, payload)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))
