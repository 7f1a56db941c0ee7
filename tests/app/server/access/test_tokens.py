"""Tokens that are taken, and all that are not."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from app.server.access.identity import AccessError
from app.server.access.tokens import Tokens, read_key_set
from app.settings.server import SettingsError
from tasks.exchange.error import ErrorKind
from tests.app.server.access.issuer import (
    AUDIENCE,
    EC,
    ED,
    ISSUER,
    KEY_SET,
    RSA,
    STRANGER,
    claims,
    forged,
    jwk,
    public_pem,
    token,
)


def tokens_of(key_set: Any = KEY_SET) -> Tokens:
    return Tokens(read_key_set(json.dumps(key_set).encode()), ISSUER, AUDIENCE)


@pytest.fixture
def tokens() -> Tokens:
    return tokens_of()


def refused(tokens: Tokens, shown: str) -> str:
    with pytest.raises(AccessError) as caught:
        tokens.identify(shown)
    assert (caught.value.kind, caught.value.reason) == (ErrorKind.UNAUTHENTICATED, "token")
    assert not any(part in caught.value.message for part in shown.split(".") if len(part) > 4)
    return caught.value.message.removeprefix("The token is not taken: ")


@pytest.mark.parametrize(("key", "algorithm", "kid"), [(RSA, "RS256", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")])
def test_a_token_says_who_sends_it_and_what_they_may(tokens: Tokens, key: Any, algorithm: str, kid: str) -> None:
    found = tokens.identify(token(key=key, algorithm=algorithm, kid=kid))
    assert found.name == "jwt:ann"
    assert found.permissions == {"infer", "read"}


@pytest.mark.parametrize(
    ("said", "permissions"),
    [
        ({"scope": "charioteer:admin openid"}, {"admin"}),
        ({"scope": None, "scp": "infer"}, {"infer"}),
        ({"scope": None, "scp": ["read", "charioteer:infer", 7]}, {"infer", "read"}),
        ({"scope": "infer", "scp": ["read"]}, {"infer", "read"}),
        ({"scope": "administrator infer,read Admin open"}, frozenset[str]()),
        ({"scope": 7}, frozenset[str]()),
        ({"scope": None}, frozenset[str]()),
    ],
)
def test_scopes_are_permissions(tokens: Tokens, said: dict[str, Any], permissions: set[str]) -> None:
    assert tokens.identify(token(claims(**said))).permissions == permissions


def test_the_audience_may_be_one_of_several(tokens: Tokens) -> None:
    assert tokens.identify(token(claims(aud=["other", AUDIENCE]))).name == "jwt:ann"


def test_clocks_may_differ_a_little(tokens: Tokens) -> None:
    assert tokens.identify(token(claims(exp=int(claims()["exp"]) - 305))).name == "jwt:ann"


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"exp": 1_000_000_000}, "it has expired"),
        ({"exp": None}, "it lacks one of exp, iss, aud and sub"),
        ({"sub": None}, "it lacks one of exp, iss, aud and sub"),
        ({"iss": None}, "it lacks one of exp, iss, aud and sub"),
        ({"aud": None}, "it lacks one of exp, iss, aud and sub"),
        ({"nbf": 4_000_000_000}, "it is not good yet"),
        ({"iat": 4_000_000_000}, "it is not good yet"),
        ({"iss": "https://issuer.example/"}, "it is of another issuer"),
        ({"iss": "https://evil.example"}, "it is of another issuer"),
        ({"iss": [ISSUER]}, "it is of another issuer"),
        ({"aud": "another"}, "it is for another audience"),
        ({"aud": []}, "it lacks one of exp, iss, aud and sub"),
        ({"aud": "charioteer2"}, "it is for another audience"),
        ({"sub": ""}, "its sub is empty"),
        ({"sub": 7}, "it is no JSON Web Token"),
        ({"exp": "tomorrow"}, "it is no JSON Web Token"),
    ],
)
def test_claims_have_to_fit(tokens: Tokens, said: dict[str, Any], fault: str) -> None:
    payload = claims(**said)
    if not isinstance(payload.get("iss", ""), str):
        payload["iss"] = json.loads(json.dumps(payload["iss"]))
        shown = _signed(payload)
    else:
        shown = token(payload) if isinstance(payload.get("sub", ""), str) else _signed(payload)
    assert refused(tokens, shown) == fault


def _signed(payload: Any) -> str:
    """A token whose payload PyJWT would not write."""
    from jwt.api_jws import encode

    return encode(payload if isinstance(payload, bytes) else json.dumps(payload).encode(), EC, "ES256", {"kid": "ec"})


@pytest.mark.parametrize(
    "payload",
    [b'{"exp": 1e999, "iss": "https://issuer.example", "aud": "charioteer", "sub": "a"}', b"[]", b"\xff", b"[" * 5000],
)
def test_payloads_that_break_readers_are_none(tokens: Tokens, payload: bytes) -> None:
    assert refused(tokens, _signed(payload)) in ("it is no JSON Web Token", "it has expired")


def test_a_stranger_signs_for_nobody(tokens: Tokens) -> None:
    assert refused(tokens, token(key=STRANGER)) == "its signature does not fit"


def test_what_was_signed_stays_as_it_was(tokens: Tokens) -> None:
    header, _, signature = token().split(".")
    _, payload, _ = forged({}, claims(scope="admin")).split(".")
    assert refused(tokens, f"{header}.{payload}.{signature}") == "its signature does not fit"
    assert refused(tokens, f"{header}.{payload}.") == "its signature does not fit"


@pytest.mark.parametrize("name", ["none", "None", "NONE", "", "HS256", "HS512"])
def test_nobody_chooses_how_a_signature_is_checked(tokens: Tokens, name: str) -> None:
    assert refused(tokens, forged({"alg": name, "kid": "rsa", "typ": "JWT"}, claims())) != ""


@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
def test_a_public_key_is_no_secret_of_hmac(tokens: Tokens, kid: str) -> None:
    secret = public_pem({"rsa": RSA, "ec": EC, "ed": ED}[kid])
    head = forged({"alg": "HS256", "kid": kid}, claims()).removesuffix(".")
    signature = hmac.digest(secret, head.encode(), hashlib.sha256)
    shown = f"{head}.{forged({}, {}, signature).split('.')[2]}"
    assert refused(tokens, shown) == "its algorithm is not one that its key is for"


@pytest.mark.parametrize("header", [{"crit": ["exp2"], "exp2": 1}, {"crit": ["b64"], "b64": False}, {"crit": []}])
def test_an_extension_that_is_critical_is_not_passed_over(tokens: Tokens, header: dict[str, Any]) -> None:
    with pytest.raises(AccessError, match="it is no JSON Web Token"):
        tokens.identify(token(**header))


def test_a_key_is_good_for_the_algorithm_that_it_names(tokens: Tokens) -> None:
    shown = token(key=RSA, algorithm="PS256", kid="rsa")
    assert refused(tokens, shown) == "its algorithm is not one that its key is for"
    unnamed = tokens_of({"keys": [jwk(RSA)]})
    assert unnamed.identify(shown).name == "jwt:ann"


@pytest.mark.parametrize("kid", ["unknown", "", "../../etc/passwd", "EC"])
def test_a_token_names_a_key_of_the_issuer(tokens: Tokens, kid: str) -> None:
    assert refused(tokens, token(kid=kid)) == "its kid names no key of the issuer"


def test_of_one_key_the_name_may_be_left_out(tokens: Tokens) -> None:
    nameless = forged({"alg": "ES256"}, claims(), b"0" * 64)
    assert refused(tokens, nameless) == "its kid names no key of the issuer"
    assert refused(tokens_of({"keys": [jwk(EC)]}), nameless) == "its signature does not fit"


@pytest.mark.parametrize("header", [{"jwk": jwk(STRANGER)}, {"jku": "https://evil.example/jwks"}, {"x5u": "https://e"}])
def test_a_token_brings_no_key_of_its_own(tokens: Tokens, header: dict[str, Any]) -> None:
    assert refused(tokens, token(key=STRANGER, **header)) == "its signature does not fit"


@pytest.mark.parametrize(
    "shown", ["..", "a.b.c", "e30.e30.", "a.b", "", "x" * 5000 + ".y.z", forged({}, {}), "\x00.\x00.\x00", "ä.ö.ü"]
)
def test_what_is_no_token_is_told_so(tokens: Tokens, shown: str) -> None:
    assert refused(tokens, shown) in ("it is no JSON Web Token", "its kid names no key of the issuer")


def test_a_header_that_goes_deep_is_none(tokens: Tokens) -> None:
    assert refused(tokens, forged(b'{"alg":' + b"[" * 6000, {})) == "it is no JSON Web Token"  # type: ignore[arg-type]


def test_a_token_that_is_known_is_taken_until_it_ends() -> None:
    now = 1_000_000_000.0
    tokens = Tokens(read_key_set(json.dumps(KEY_SET).encode()), ISSUER, AUDIENCE, clock=lambda: now)
    shown = token()
    found = tokens.identify(shown)
    assert tokens.identify(shown) is found
    now += 2_000_000_000
    # Read again, and by the real clock it is good still.
    assert tokens.identify(shown) is not found


def test_many_tokens_fill_no_memory() -> None:
    tokens = Tokens(read_key_set(json.dumps(KEY_SET).encode()), ISSUER, AUDIENCE, remembered=2)
    shown = [token(claims(sub=each)) for each in "abc"]
    first = [tokens.identify(each) for each in shown[:2]]
    assert [tokens.identify(each) for each in shown[:2]] == first
    tokens.identify(shown[2])
    again = [tokens.identify(each) for each in shown[:2]]
    assert again == first
    assert again[0] is not first[0]


@pytest.mark.parametrize(
    ("key_set", "said"),
    [
        ([], "Expected a JSON Web Key Set"),
        ({}, "Expected a JSON Web Key Set"),
        ({"keys": {}}, "Expected a JSON Web Key Set"),
        ({"keys": []}, "got none"),
        ({"keys": [7]}, "got none"),
        ({"keys": [{"kty": "EC", "crv": "secp256k1", "x": "", "y": ""}]}, "got none"),
        ({"keys": [jwk(RSA, use="enc")]}, "got none"),
        ({"keys": [jwk(RSA, alg="HS256")]}, "got none"),
        ({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, "has a secret in it"),
        ({"keys": [jwk(EC, kid="a"), jwk(RSA, kid="b", d="AQAB")]}, "has a secret in it"),
        ({"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}, "EC key that cannot be read"),
        ({"keys": [{"kty": "RSA", "n": "AQ"}]}, "RSA key that cannot be read"),
        ({"keys": [jwk(EC), jwk(RSA)]}, "a kid of its own"),
        ({"keys": [jwk(EC, kid="a"), jwk(RSA, kid="a")]}, "a kid of its own"),
        ({"keys": [jwk(EC, kid="a"), jwk(RSA, kid=7)]}, "a kid of its own"),
    ],
)
def test_a_key_set_that_cannot_be_used_is_told_so(key_set: Any, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_key_set(json.dumps(key_set).encode())
    assert said in str(caught.value)


def test_short_keys_are_none() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(SettingsError, match="Expected RSA keys of 2048 bits or more, got one of 1024"):
        read_key_set(json.dumps({"keys": [jwk(short)]}).encode())


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"nothing"])
def test_what_is_no_json_is_no_key_set(content: bytes) -> None:
    with pytest.raises(SettingsError, match="Expected a JSON Web Key Set"):
        read_key_set(content)
