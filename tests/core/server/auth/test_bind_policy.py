"""Addresses that need authentication, and CORS origins."""

from pathlib import Path
from typing import Any

import pytest

from app.core.server.auth.bind_policy import check_bind_policy, warn_about_clear_text
from app.core.server.http.request_rules import parse_origins
from app.core.settings.server import ServerSettings, SettingsError

PUBLIC = ("0.0.0.0", "::", "10.0.0.1", "models.example", "", "127.0.0.1.example")


@pytest.mark.parametrize("host", PUBLIC)
def test_public_address_without_authentication_is_rejected(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_bind_policy(ServerSettings(host=host), authenticates=False)
    assert all(
        option in str(caught.value) for option in ("--api-keys", "--jwks", "--tls-client-ca", "--insecure", host)
    )


@pytest.mark.parametrize(
    ("options", "authenticates"), [({}, True), ({"tls_client_ca": Path("ca.pem")}, False), ({"insecure": True}, False)]
)
@pytest.mark.parametrize("host", PUBLIC)
def test_public_address_with_authentication_or_insecure_is_accepted(
    host: str, options: dict[str, Any], authenticates: bool
) -> None:
    check_bind_policy(ServerSettings(host=host, **options), authenticates=authenticates)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_address_needs_no_authentication(host: str) -> None:
    check_bind_policy(ServerSettings(host=host), authenticates=False)


def test_server_certificate_does_not_count_as_authentication() -> None:
    with pytest.raises(SettingsError):
        check_bind_policy(ServerSettings(host="0.0.0.0", tls_cert=Path("a"), tls_key=Path("b")), authenticates=False)


@pytest.mark.parametrize(
    ("settings", "authenticates", "is_warned"),
    [
        (ServerSettings(host="0.0.0.0"), True, True),
        (ServerSettings(host="0.0.0.0", tls_cert=Path("b")), True, False),
        (ServerSettings(), True, False),
        (ServerSettings(host="0.0.0.0", insecure=True), False, False),
    ],
)
def test_credentials_without_tls_on_a_public_address_log_a_warning(
    settings: ServerSettings, authenticates: bool, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_about_clear_text(settings, authenticates=authenticates)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * is_warned


def test_cors_origins_are_split_at_commas() -> None:
    assert parse_origins("--cors-origins", "") == []
    origins = ["https://app.example", "http://127.0.0.1:3000"]
    assert parse_origins("--cors-origins", " https://app.example, http://127.0.0.1:3000,") == origins


@pytest.mark.parametrize(
    "origin",
    ["*", "app.example", "https://app.example/", "https://app.example/a", "https://", "null", "https://App.example"],
)
def test_invalid_cors_origin_raises_settings_error(origin: str) -> None:
    with pytest.raises(SettingsError, match=r"--cors-origins: expected origins such as https://app\.example, got"):
        parse_origins("--cors-origins", f"https://good.example,{origin}")
