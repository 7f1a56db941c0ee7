"""Accepted and rejected JSON Web Tokens."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.core.server.auth.credentials import AccessError
from app.core.settings.server import SettingsError
from app.plugins.access.jwt.validator import JwtValidator, read_key_set
from tasks.inference.error import ErrorKind
from tests.plugins.access.jwt.issuer import AUDIENCE, EC, ED, ISSUER, KEY_SET, RSA, STRANGER, claims, forged, jwk, token


def tokens_of(key_set: Any = KEY_SET, **options: Any) -> JwtValidator:
    return JwtValidator(read_key_set(json.dumps(key_set).encode()), ISSUER, AUDIENCE, **options)


@pytest.fixture
def tokens() -> JwtValidator:
    return tokens_of()


def rejection_reason(tokens: JwtValidator, token_text: str) -> str:
    with pytest.raises(AccessError) as caught:
        tokens.identify(token_text)
    assert (caught.value.kind, caught.value.reason) == (ErrorKind.UNAUTHENTICATED, "token")
    assert not any(part in caught.value.message for part in token_text.split(".") if len(part) > 4)
    return caught.value.message.removeprefix("The token is not taken: ")


@pytest.mark.parametrize(("key", "algorithm", "kid"), [(RSA, "RS256", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")])
def test_token_of_every_key_type_identifies_name_and_permissions(
    tokens: JwtValidator, key: Any, algorithm: str, kid: str
) -> None:
    identity = tokens.identify(token(key=key, algorithm=algorithm, kid=kid))
    assert identity.name == "jwt:ann"
    assert identity.permissions == {"infer", "read"}


@pytest.mark.parametrize(
    ("extra_claims", "permissions"),
    [
        ({"scope": "charioteer:admin openid"}, {"admin"}),
        ({"scope": None, "scp": "infer"}, {"infer"}),
        ({"scope": None, "scp": ["read", "charioteer:infer", 7]}, {"infer", "read"}),
        ({"scope": "infer", "scp": ["read"]}, {"infer", "read"}),
        ({"scope": "administrator infer,read Admin open"}, frozenset[str]()),
        ({"scope": None}, frozenset[str]()),
    ],
)
def test_scopes_map_to_permissions(tokens: JwtValidator, extra_claims: dict[str, Any], permissions: set[str]) -> None:
    assert tokens.identify(token(claims(**extra_claims))).permissions == permissions


def test_token_of_several_audiences_that_expired_seconds_ago_is_accepted(tokens: JwtValidator) -> None:
    assert tokens.identify(token(claims(aud=["other", AUDIENCE], exp=int(claims()["exp"]) - 305))).name == "jwt:ann"


@pytest.mark.parametrize(
    ("extra_claims", "error_text"),
    [
        ({"exp": 1_000_000_000}, "it has expired"),
        *(({name: None}, "it lacks one of exp, iss, aud and sub") for name in ("exp", "sub", "iss", "aud")),
        ({"nbf": 4_000_000_000}, "it is not good yet"),
        ({"iat": 4_000_000_000}, "it is not good yet"),
        ({"iss": "https://issuer.example/"}, "it is of another issuer"),
        ({"iss": [ISSUER]}, "it is of another issuer"),
        ({"aud": "another"}, "it is for another audience"),
        ({"aud": []}, "it lacks one of exp, iss, aud and sub"),
        ({"sub": ""}, "its sub is empty"),
        ({"sub": "a\ud800"}, "it is no valid JSON Web Token"),
        ({"sub": 7}, "it is no valid JSON Web Token"),
        ({"exp": "tomorrow"}, "it is no valid JSON Web Token"),
    ],
)
def test_token_of_bad_claims_is_rejected(tokens: JwtValidator, extra_claims: dict[str, Any], error_text: str) -> None:
    assert rejection_reason(tokens, _signed(claims(**extra_claims))) == error_text


def _signed(payload: Any) -> str:
    """Sign a payload that PyJWT rejects to write."""
    from jwt.api_jws import encode

    return encode(payload if isinstance(payload, bytes) else json.dumps(payload).encode(), EC, "ES256", {"kid": "ec"})


@pytest.mark.parametrize(
    "payload",
    [b'{"exp": 1e999, "iss": "https://issuer.example", "aud": "charioteer", "sub": "a"}', b"[]", b"\xff", b"[" * 5000],
)
def test_malformed_payload_is_rejected(tokens: JwtValidator, payload: bytes) -> None:
    assert rejection_reason(tokens, _signed(payload)) in ("it is no valid JSON Web Token", "it has expired")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "its signature does not fit"),
        ({"jwk": jwk(STRANGER)}, "its signature does not fit"),
        ({"jku": "https://evil.example/jwks"}, "its signature does not fit"),
        ({"x5u": "https://e"}, "its signature does not fit"),
        *(({"kid": kid}, "its kid names no key of the issuer") for kid in ("unknown", "", "EC")),
    ],
)
def test_token_of_a_key_that_the_issuer_does_not_have_is_rejected(
    tokens: JwtValidator, headers: dict[str, Any], reason: str
) -> None:
    assert rejection_reason(tokens, token(key=STRANGER, **headers)) == reason


def test_changed_payload_or_missing_signature_is_rejected(tokens: JwtValidator) -> None:
    header, _, signature = token().split(".")
    _, payload, _ = forged({}, claims(scope="admin")).split(".")
    assert rejection_reason(tokens, f"{header}.{payload}.{signature}") == "its signature does not fit"
    assert rejection_reason(tokens, f"{header}.{payload}.") == "its signature does not fit"


@pytest.mark.parametrize("algorithm", ["none", "NONE", "", "HS256"])
def test_algorithm_in_the_header_cannot_weaken_the_check(tokens: JwtValidator, algorithm: str) -> None:
    rejection_reason(tokens, forged({"alg": algorithm, "kid": "rsa", "typ": "JWT"}, claims()))


@pytest.mark.parametrize(("kid", "key"), [("rsa", RSA), ("ec", EC), ("ed", ED)])
def test_public_key_as_hmac_secret_is_rejected(tokens: JwtValidator, kid: str, key: Any) -> None:
    secret = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = forged({"alg": "HS256", "kid": kid}, claims()).removesuffix(".")
    signature = hmac.digest(secret, head.encode(), hashlib.sha256)
    token_text = f"{head}.{forged({}, {}, signature).split('.')[2]}"
    assert rejection_reason(tokens, token_text) == "its algorithm is not one that its key is for"


@pytest.mark.parametrize("header", [{"crit": ["exp2"], "exp2": 1}, {"crit": ["b64"], "b64": False}, {"crit": []}])
def test_unknown_critical_header_is_rejected(tokens: JwtValidator, header: dict[str, Any]) -> None:
    with pytest.raises(AccessError, match="it is no valid JSON Web Token"):
        tokens.identify(token(**header))


def test_key_accepts_only_the_algorithm_that_it_names(tokens: JwtValidator) -> None:
    token_text = token(key=RSA, algorithm="PS256", kid="rsa")
    assert rejection_reason(tokens, token_text) == "its algorithm is not one that its key is for"
    keys_without_alg = tokens_of({"keys": [jwk(RSA)]})
    assert keys_without_alg.identify(token_text).name == "jwt:ann"


def test_kid_is_optional_if_the_key_set_has_one_key(tokens: JwtValidator) -> None:
    token_without_kid = forged({"alg": "ES256"}, claims(), b"0" * 64)
    assert rejection_reason(tokens, token_without_kid) == "its kid names no key of the issuer"
    assert rejection_reason(tokens_of({"keys": [jwk(EC)]}), token_without_kid) == "its signature does not fit"


DEEP = forged(b'{"alg":' + b"[" * 6000, {})


@pytest.mark.parametrize("token_text", ["..", "a.b.c", "a.b", "", forged({}, {}), "\x00.\x00.\x00", "ä.ö.ü", DEEP])
def test_text_that_is_not_a_token_is_rejected(tokens: JwtValidator, token_text: str) -> None:
    reasons = "it is no valid JSON Web Token", "its kid names no key of the issuer"
    assert rejection_reason(tokens, token_text) in reasons


def test_identity_of_a_token_is_cached_until_it_expires() -> None:
    now = 1_000_000_000.0
    tokens = tokens_of(clock=lambda: now)
    token_text = token()
    identity = tokens.identify(token_text)
    assert tokens.identify(token_text) is identity
    now += 2_000_000_000
    # The cached entry has expired; by the real clock the token is still valid.
    assert tokens.identify(token_text) is not identity


def test_token_cache_is_bounded() -> None:
    tokens = tokens_of(max_cached=2)
    oldest, *others = (token(claims(sub=name)) for name in "abc")
    first = tokens.identify(oldest)
    for text in others:
        tokens.identify(text)
    again = tokens.identify(oldest)
    assert again == first
    assert again is not first


SHORT = rsa.generate_private_key(public_exponent=65537, key_size=1024)


@pytest.mark.parametrize(
    ("keys", "error_text"),
    [
        ([], "got none"),
        ([{"kty": "EC", "crv": "secp256k1", "x": "", "y": ""}], "got none"),
        ([jwk(RSA, use="enc")], "got none"),
        ([jwk(RSA, alg="HS256")], "got none"),
        ([{"kty": "oct", "k": "c2VjcmV0"}], "has a secret in it"),
        ([jwk(EC, kid="a"), jwk(RSA, kid="b", d="AQAB")], "has a secret in it"),
        ([{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}], "EC key that cannot be read"),
        ([{"kty": "RSA", "n": "AQ"}], "RSA key that cannot be read"),
        ([jwk(EC), jwk(RSA)], "a kid of its own"),
        ([jwk(EC, kid="a"), jwk(RSA, kid=7)], "a kid of its own"),
        ([jwk(SHORT)], "Expected RSA keys of 2048 bits or more, got one of 1024"),
    ],
)
def test_unusable_key_set_raises_settings_error(keys: Any, error_text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_key_set(json.dumps({"keys": keys}).encode())
    assert error_text in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"nothing", b"{}", b'{"keys": {}}'])
def test_content_that_is_no_key_set_raises_settings_error(content: bytes) -> None:
    with pytest.raises(SettingsError, match="Expected a JSON Web Key Set"):
        read_key_set(content)
