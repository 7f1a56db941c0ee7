"""An issuer of tokens: its keys, and tokens of any making."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "charioteer"

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
STRANGER = ec.generate_private_key(ec.SECP256R1())
"""A key of somebody else."""


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    """The public half of `key`, as a JSON Web Key."""
    kind: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else OKPAlgorithm
    kind = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else kind
    found = json.loads(kind.to_jwk(key.public_key()))
    return {**{name: value for name, value in found.items() if name not in ("key_ops", "alg")}, **more}


KEY_SET = {"keys": [jwk(RSA, kid="rsa", alg="RS256", use="sig"), jwk(EC, kid="ec"), jwk(ED, kid="ed")]}


def key_set_file(folder: Path, key_set: Any = None) -> Path:
    """A file with a key set."""
    path = folder / "jwks.json"
    path.write_text(json.dumps(key_set or KEY_SET))
    return path


def claims(now: float | None = None, /, **more: Any) -> dict[str, Any]:
    """Those of a token that is taken; None leaves one out."""
    now = time.time() if now is None else now
    found = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(now) + 300, "scope": "infer read", **more}
    return {name: value for name, value in found.items() if value is not None}


def token(said: dict[str, Any] | None = None, *, key: Any = EC, algorithm: str = "ES256", **headers: Any) -> str:
    """A token, signed."""
    return jwt.encode(said or claims(), key, algorithm=algorithm, headers={"kid": "ec", **headers})


def forged(header: dict[str, Any], said: Any, signature: bytes = b"") -> str:
    """What looks like a token, whatever its header says."""
    parts = [json.dumps(each).encode() if not isinstance(each, bytes) else each for each in (header, said)]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (*parts, signature))


def public_pem(key: Any) -> bytes:
    """The public half of `key`, as some servers have it at hand for a secret of HMAC."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
