"""Access control from the settings."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.core.server.auth.access_control import open_access_control
from app.core.server.auth.credentials import AccessError
from app.core.settings.network import AccessSettings
from app.core.settings.server import SettingsError
from tests.plugins.jwt.issuer import AUDIENCE, ISSUER, key_set_file, token
from tests.support.servers.auth_apps import INFER_KEY, access_with_keys, write_key_file


def test_access_is_open_without_keys_and_tokens() -> None:
    assert open_access_control(AccessSettings(insecure=True), CollectorRegistry()) is None


@pytest.mark.parametrize(
    ("settings", "error_text"),
    [
        ({"requests_per_second": 1.0}, "--requests-per-second needs --api-keys or --jwks"),
        ({"burst": 1}, "--burst needs --api-keys or --jwks"),
        ({"jwt_issuer": "a"}, "--jwt-issuer needs --jwks"),
        ({"jwt_audience": "a"}, "--jwt-audience needs --jwks"),
        ({"jwks": Path("a")}, "--jwks needs --jwt-issuer and --jwt-audience"),
        ({"jwks": Path("a"), "jwt_issuer": "a", "jwt_audience": ""}, "--jwks needs --jwt-issuer and --jwt-audience"),
        ({"jwks": Path("none"), "jwt_issuer": "a", "jwt_audience": "b"}, "none cannot be read: No such file"),
        ({"api_keys": Path("none")}, "none cannot be read: No such file"),
        ({"api_keys": Path("none"), "burst": 1}, "--burst needs --requests-per-second"),
        ({"api_keys": Path("none"), "jwt_issuer": "a"}, "--jwt-issuer needs --jwks"),
    ],
)
def test_contradicting_settings_raise_settings_error(settings: dict[str, Any], error_text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        open_access_control(AccessSettings(**settings), CollectorRegistry())
    assert error_text in str(caught.value)


def test_token_is_treated_as_a_key_without_jwks(tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        access_with_keys(tmp_path).identify([("x-api-key", token())])
    assert caught.value.reason == "unknown"


def test_key_is_rejected_as_a_token_without_api_keys(tmp_path: Path) -> None:
    settings = AccessSettings(jwks=key_set_file(tmp_path), jwt_issuer=ISSUER, jwt_audience=AUDIENCE)
    access = open_access_control(settings, CollectorRegistry())
    assert access is not None
    assert access.identify([("x-api-key", token())]).name == "jwt:ann"
    with pytest.raises(AccessError, match="Expected a JSON Web Token, got something else"):
        access.identify([("x-api-key", INFER_KEY)])


def test_missing_permission_is_refused_and_counted(tmp_path: Path) -> None:
    metrics = CollectorRegistry()
    access = access_with_keys(tmp_path, metrics)
    with pytest.raises(AccessError) as caught:
        access.authorize([("x-api-key", INFER_KEY)], "admin")
    access.rejection_log.record(caught.value, [], operation="GET /", address="a")
    assert (caught.value.reason, caught.value.client) == ("permission", "camera")
    assert metrics.get_sample_value("charioteer_access_refused_total", {"reason": "permission"}) == 1


def test_keys_are_read_from_the_file_in_the_settings(tmp_path: Path) -> None:
    path = write_key_file(tmp_path)
    access = open_access_control(AccessSettings(api_keys=path), CollectorRegistry())
    assert access is not None
    assert access.identify([("authorization", f"Bearer {INFER_KEY}")]).name == "camera"


def test_tokens_need_the_jwt_extra_but_keys_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "app.plugins.jwt.validator", raising=False)
    tokens = AccessSettings(jwks=key_set_file(tmp_path), jwt_issuer=ISSUER, jwt_audience=AUDIENCE)
    with pytest.raises(SettingsError, match=r"^--jwks needs the extra jwt, pip install 'charioteer\[jwt\]'"):
        open_access_control(tokens, CollectorRegistry())
    assert open_access_control(AccessSettings(api_keys=write_key_file(tmp_path)), CollectorRegistry()) is not None


@pytest.mark.slow
def test_jwt_libraries_are_not_imported_without_jwks() -> None:
    imported = "[name for name in ('jwt', 'cryptography') if name in sys.modules]"
    program = f"import sys, app.core.server.auth.http_access; print({imported})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
