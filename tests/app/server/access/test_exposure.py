"""Where a server may listen without asking who comes."""

from pathlib import Path
from typing import Any

import pytest

from app.server.access.exposure import check_exposure, cors_origins, warn_of_clear_text
from app.settings.server import ServerSettings, SettingsError

PUBLIC = ("0.0.0.0", "::", "10.0.0.1", "models.example", "", "127.0.0.1.example")


@pytest.mark.parametrize("host", PUBLIC)
def test_an_address_that_others_reach_needs_a_reason(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_exposure(ServerSettings(host=host))
    assert all(each in str(caught.value) for each in ("--api-keys", "--jwks", "--tls-client-ca", "--insecure", host))


@pytest.mark.parametrize(
    "reason",
    [
        {"api_keys": Path("keys.json")},
        {"jwks": Path("jwks.json")},
        {"tls_client_ca": Path("ca.pem")},
        {"insecure": True},
    ],
)
@pytest.mark.parametrize("host", PUBLIC)
def test_any_reason_does(host: str, reason: dict[str, Any]) -> None:
    check_exposure(ServerSettings(host=host, **reason))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    check_exposure(ServerSettings(host=host))


def test_a_certificate_of_the_server_says_nothing_of_its_callers() -> None:
    with pytest.raises(SettingsError):
        check_exposure(ServerSettings(host="0.0.0.0", tls_cert=Path("a"), tls_key=Path("b")))


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        (ServerSettings(host="0.0.0.0", api_keys=Path("a")), True),
        (ServerSettings(host="0.0.0.0", jwks=Path("a")), True),
        (ServerSettings(host="0.0.0.0", api_keys=Path("a"), tls_cert=Path("b")), False),
        (ServerSettings(api_keys=Path("a")), False),
        (ServerSettings(host="0.0.0.0", insecure=True), False),
    ],
)
def test_keys_in_clear_text_are_a_warning(
    settings: ServerSettings, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_clear_text(settings)
    assert [each.levelname for each in caplog.records] == ["WARNING"] * warned


def test_origins_are_a_list() -> None:
    assert cors_origins(ServerSettings()) == []
    listed = ServerSettings(cors_origins=" https://app.example, http://127.0.0.1:3000,")
    assert cors_origins(listed) == ["https://app.example", "http://127.0.0.1:3000"]


@pytest.mark.parametrize(
    "origin",
    ["*", "app.example", "https://app.example/", "https://app.example/a", "https://", "null", "https://App.example"],
)
def test_what_is_no_origin_is_told_so(origin: str) -> None:
    with pytest.raises(SettingsError, match=r"--cors-origins: expected origins such as https://app\.example, got"):
        cors_origins(ServerSettings(cors_origins=f"https://good.example,{origin}"))
