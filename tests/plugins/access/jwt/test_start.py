"""Tokens as credentials of a server, and their options."""

import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.core.assembly.discovery import discover
from app.core.assembly.service import Service
from app.core.plugins import registry
from app.core.server.auth.access_control import open_access_control
from app.core.server.auth.bind_policy import check_bind_policy
from app.core.server.auth.credentials import AccessError
from app.core.settings.network import AccessSettings
from app.core.settings.server import DEMO_MODELS, SettingsError
from app.plugins.access.jwt.start import start
from tests.plugins.access.jwt.issuer import AUDIENCE, ISSUER, STRANGER, claims, key_set_file, token
from tests.support.servers.auth_apps import (
    INFER_KEY,
    access_with_keys,
    authenticated_app,
    bearer_header,
    http_client,
    inference_body,
    write_key_file,
)

ISSUED = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}


def service(**options: Any) -> Service:
    settings = registry().settings(grpc=False, tensorflow_serving=False, **options)
    return Service(settings, lambda: discover(DEMO_MODELS / "detector"))


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"jwt_issuer": "a"}, "--jwt-issuer needs --jwks"),
        ({"jwt_audience": "a"}, "--jwt-audience needs --jwks"),
        ({"api_keys": Path("none"), "jwt_issuer": "a"}, "--jwt-issuer needs --jwks"),
        ({"jwks": Path("a")}, "--jwks needs --jwt-issuer and --jwt-audience"),
        ({"jwks": Path("a"), "jwt_issuer": "a", "jwt_audience": ""}, "--jwks needs --jwt-issuer and --jwt-audience"),
        ({"jwks": Path("none"), "jwt_issuer": "a", "jwt_audience": "b"}, "--jwks: none cannot be read: No such file"),
        ({"jwks": Path("https://a/keys"), "jwt_issuer": "a", "jwt_audience": "b"}, "Expected a file, got a URL"),
    ],
)
def test_contradicting_options_raise_settings_error(options: dict[str, Any], error_text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        service(**options)
    assert error_text in str(caught.value)


def test_server_with_tokens_may_listen_on_a_public_address(tmp_path: Path) -> None:
    served = service(host="0.0.0.0", jwks=key_set_file(tmp_path), **ISSUED)
    check_bind_policy(served.settings, authenticates=served.authenticates)


def test_token_is_treated_as_a_key_without_jwks(tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        access_with_keys(tmp_path).identify([("x-api-key", token())])
    assert caught.value.reason == "unknown"


def test_key_is_rejected_as_a_token_without_api_keys(tmp_path: Path) -> None:
    client = http_client(service(jwks=key_set_file(tmp_path), **ISSUED).app)
    assert client.get("/metrics", headers={"X-API-Key": token()}).status_code == 200
    response = client.get("/metrics", headers={"X-API-Key": INFER_KEY})
    assert (response.status_code, response.json()["error"]) == (401, "Expected a JSON Web Token, got something else")


def test_tokens_need_the_jwt_extra_but_keys_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "app.plugins.access.jwt.validator", raising=False)
    with pytest.raises(SettingsError, match=r"^--jwks needs the extra jwt, pip install 'charioteer\[jwt\]'"):
        service(jwks=key_set_file(tmp_path), **ISSUED)
    assert service(api_keys=write_key_file(tmp_path)).authenticates


def test_tokens_and_keys_are_accepted_together(tmp_path: Path) -> None:
    settings = AccessSettings(api_keys=write_key_file(tmp_path))
    identities = start(service(jwks=key_set_file(tmp_path), **ISSUED)).identities
    client = http_client(authenticated_app(open_access_control(settings, CollectorRegistry(), identities)))
    headers = [
        bearer_header(token()),
        {"X-API-Key": token()},
        bearer_header(INFER_KEY),
        bearer_header(token(key=STRANGER)),
    ]
    path = "/v2/models/m-detector/infer"
    *accepted, response = (client.post(path, json=inference_body(), headers=credentials) for credentials in headers)
    assert [answer.status_code for answer in accepted] == [200, 200, 200]
    error = "The token is not taken: its signature does not fit"
    assert (response.status_code, response.json()["error"]) == (401, error)
    for scope, had in (("infer", "infer"), ("openid", "none")):
        forbidden = client.get("/metrics", headers=bearer_header(token(claims(scope=scope))))
        assert forbidden.json()["error"] == f"This needs the permission read; jwt:ann has {had}"
