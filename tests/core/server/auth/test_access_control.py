"""Access control from the settings."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.core.server.auth.access_control import open_access_control
from app.core.server.auth.credentials import AccessError, Identity
from app.core.settings.network import AccessSettings
from app.core.settings.server import SettingsError
from tests.support.servers.auth_apps import INFER_KEY, write_key_file


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
