"""Credentials: from the headers of a request, from a key file, and of a plugin."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from app.core.engine.scheduling.token_bucket import Rate
from app.core.server.auth.access_control import open_access_control
from app.core.server.auth.api_keys import ApiKeys, digest_of, read_keys
from app.core.server.auth.credentials import AccessError, Identity, credential_of
from app.core.settings.network import AccessSettings
from app.core.settings.server import SettingsError
from tasks.inference.error import ErrorKind
from tests.support.servers.auth_apps import INFER_KEY, write_key_file


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode('latin-1')).decode()}"


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer k-1")],
        [("authorization", "bearer   k-1 ")],
        [("authorization", "BEARER k-1")],
        [("authorization", basic("anybody:k-1"))],
        [("authorization", basic(":k-1"))],
        [("x-api-key", " k-1 ")],
        [("accept", "*/*"), ("x-api-key", "k-1"), ("authorization", "Bearer of a gateway")],
    ],
)
def test_key_is_read_from_authorization_and_x_api_key(headers: list[tuple[str, str]]) -> None:
    assert credential_of(headers) == "k-1"


def test_basic_password_may_contain_colons() -> None:
    assert credential_of([("authorization", basic("user:a:b"))]) == "a:b"


@pytest.mark.parametrize(
    ("headers", "reason", "error_text"),
    [
        ([], "missing", "got neither"),
        ([("api-key", "k"), ("cookie", "k")], "missing", "got neither"),
        ([("authorization", "")], "malformed", "Expected Bearer or Basic"),
        ([("authorization", "Bearer")], "malformed", "Expected a key or a token in authorization, got none"),
        ([("authorization", "Bearer   ")], "malformed", "got none"),
        ([("authorization", "k-1")], "malformed", "Expected Bearer or Basic"),
        ([("authorization", "Digest username=k-1")], "malformed", "Expected Bearer or Basic"),
        ([("authorization", "Basic")], "malformed", "got none"),
        ([("authorization", "Basic !!!")], "malformed", "Expected base64"),
        ([("authorization", "Basic ä")], "malformed", "Expected base64"),
        ([("authorization", basic("no-colon"))], "malformed", "got none"),
        ([("x-api-key", "")], "malformed", "Expected a key or a token in x-api-key, got none"),
        ([("authorization", "Bearer k-1"), ("authorization", "Bearer k-1")], "malformed", "got it 2 times"),
        ([("x-api-key", "k-1"), ("x-api-key", "k-2"), ("x-api-key", "k-3")], "malformed", "got it 3 times"),
        ([("x-api-key", "k" * 16_385)], "malformed", "at most 16,384 characters"),
    ],
)
def test_missing_or_malformed_credential_is_rejected(
    headers: list[tuple[str, str]], reason: str, error_text: str
) -> None:
    with pytest.raises(AccessError) as caught:
        credential_of(headers)
    assert caught.value.kind is ErrorKind.UNAUTHENTICATED
    assert caught.value.reason == reason
    assert error_text in caught.value.message
    assert "k-1" not in caught.value.message


NAMES = st.sampled_from(["authorization", "x-api-key", "cookie", "x-request-id"])
VALUES = st.text(alphabet=st.characters(max_codepoint=255)) | st.sampled_from(["Basic Og==", "Bearer a", "Basic YTpi"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=4))
def test_arbitrary_headers_yield_a_credential_or_access_error(headers: list[tuple[str, str]]) -> None:
    try:
        credential = credential_of(headers)
    except AccessError:
        return
    assert 0 < len(credential) <= 16_384
    assert sum(name in ("authorization", "x-api-key") for name, _ in headers) <= 1 or "x-api-key" in dict(headers)


NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def entry(key: str, name: str = "camera", **fields: Any) -> dict[str, Any]:
    return {"name": name, "sha256": digest_of(key).hex(), "permissions": ["infer"], **fields}


def keys_of(*entries: dict[str, Any], now: datetime = NOON) -> ApiKeys:
    return ApiKeys(read_keys(json.dumps(entries).encode()), clock=lambda: now)


def test_key_identifies_its_name_permissions_and_rate() -> None:
    keys = keys_of(entry("a"), entry("b", "operator", permissions=["admin", "read"], requests_per_second=0.5))
    assert keys.identify("a") == Identity(name="camera", permissions=frozenset({"infer"}))
    assert keys.identify("b").permissions == {"admin", "read"}
    assert keys.identify("b").rate == Rate(per_second=0.5, burst=1)


def test_burst_defaults_to_the_requests_per_second() -> None:
    assert keys_of(entry("a", requests_per_second=7)).identify("a").rate == Rate(per_second=7, burst=7)
    assert keys_of(entry("a", requests_per_second=7, burst=20)).identify("a").rate == Rate(per_second=7, burst=20)


@pytest.mark.parametrize("credential", [digest_of("a").hex(), "", "A", "a ", "camera", "\x00a", "ä", "\ud800"])
def test_text_other_than_the_key_is_rejected(credential: str) -> None:
    with pytest.raises(AccessError) as caught:
        keys_of(entry("a")).identify(credential)
    assert (caught.value.reason, caught.value.message) == ("unknown", "The key is not known here")


def test_key_expires_after_not_after() -> None:
    expiring = entry("a", not_after="2026-06-01T12:00:00Z")
    assert keys_of(expiring, now=NOON).identify("a").name == "camera"
    with pytest.raises(AccessError) as caught:
        keys_of(expiring, now=NOON.replace(second=1)).identify("a")
    assert caught.value.reason == "expired"
    assert caught.value.message == "The key was good until 2026-06-01T12:00:00+00:00"


@pytest.mark.parametrize(
    ("content", "error_text"),
    [
        (b"", "Expected a JSON list of keys"),
        (b"{}", "Expected `array`, got `object`"),
        (b"[1]", "Expected `object`, got `int`"),
        (b"\xff", "Expected a JSON list of keys"),
        (b"[" * 100_000, "Expected a JSON list of keys"),
        (json.dumps([entry("a"), entry("b")]).encode(), "Expected every name once"),
        (json.dumps([entry("a"), entry("a", "b")]).encode(), "Expected every sha256 once"),
        (
            json.dumps([entry("a", permissions=["open"])]).encode(),
            "camera: expected infer, read, label or admin, got open",
        ),
        (json.dumps([entry("a", permissions=["root"])]).encode(), "Invalid enum value 'root'"),
        (json.dumps([entry("a", permissions=[])]).encode(), "Expected `array` of length >= 1"),
        (json.dumps([entry("a", burst=1)]).encode(), "camera: burst needs requests_per_second"),
        (json.dumps([entry("a", requests_per_second=0)]).encode(), "requests_per_second"),
        (json.dumps([entry("a", not_after="2026-06-01T12:00:00")]).encode(), "not_after"),
        (json.dumps([entry("a", "two words")]).encode(), "name"),
        (json.dumps([entry("a", "jwt:user")]).encode(), "name"),
        (json.dumps([entry("a", permission="admin")]).encode(), "unknown field `permission`"),
        (json.dumps([{**entry("a"), "sha256": "my-plain-key"}]).encode(), "sha256"),
    ],
)
def test_invalid_key_file_is_rejected_without_revealing_its_content(content: bytes, error_text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_keys(content)
    assert error_text in str(caught.value)
    assert "my-plain-key" not in str(caught.value)


def test_access_is_open_without_keys_and_tokens() -> None:
    assert open_access_control(AccessSettings(insecure=True), CollectorRegistry()) is None


@pytest.mark.parametrize(
    ("settings", "error_text"),
    [
        ({"requests_per_second": 1.0}, "--requests-per-second needs --api-keys or --jwks"),
        ({"burst": 1}, "--burst needs --api-keys or --jwks"),
        ({"api_keys": Path("none")}, "--api-keys: none cannot be read: No such file"),
        ({"api_keys": Path("none"), "burst": 1}, "--burst needs --requests-per-second"),
    ],
)
def test_contradicting_settings_raise_settings_error(settings: dict[str, Any], error_text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        open_access_control(AccessSettings(**settings), CollectorRegistry())
    assert error_text in str(caught.value)


class Badges:
    """Identities that have a badge."""

    credential = "a badge"

    def identify(self, credential: str) -> Identity | None:
        return Identity(name="badge:ann", permissions=frozenset()) if credential == "badge" else None


def test_credential_that_a_plugin_does_not_know_is_treated_as_a_key(tmp_path: Path) -> None:
    access = open_access_control(AccessSettings(api_keys=write_key_file(tmp_path)), CollectorRegistry(), Badges())
    assert access is not None
    assert access.identify([("x-api-key", "badge")]).name == "badge:ann"
    assert access.identify([("x-api-key", INFER_KEY)]).name == "camera"


def test_key_is_rejected_without_api_keys() -> None:
    access = open_access_control(AccessSettings(), CollectorRegistry(), Badges())
    assert access is not None
    with pytest.raises(AccessError, match="Expected a badge, got something else"):
        access.identify([("x-api-key", INFER_KEY)])
