"""Authentication and authorization over HTTP."""

from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry

from app.core.server.auth.access_control import AccessControl, open_access_control
from app.core.server.auth.api_keys import ApiKey
from app.core.server.auth.audit import RejectionLog
from app.core.server.auth.credentials import Identity, unauthenticated
from app.core.server.auth.rate_limiter import RateLimiter
from app.core.settings.network import AccessSettings
from app.plugins.access.keys.key_file import add_key
from tests.support.servers.auth_apps import (
    INFER_KEY,
    READ_KEY,
    access_with_keys,
    authenticated_app,
    bearer_header,
    http_client,
    inference_body,
)

INFERENCE = "/v2/models/m-detector/infer"
MISSING = "Expected a key or a token in Authorization or X-API-Key, got neither"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient[Litestar]:
    return http_client(authenticated_app(access_with_keys(tmp_path_factory.mktemp("keys"))))


@pytest.mark.parametrize("query", [f"api_key={INFER_KEY}", f"access_token={INFER_KEY}"])
def test_key_in_a_query_or_a_cookie_is_ignored(client: TestClient[Litestar], query: str) -> None:
    assert client.post(f"{INFERENCE}?{query}", json=inference_body()).status_code == 401
    assert client.post(INFERENCE, json=inference_body(), headers={"Cookie": query}).status_code == 401


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (INFERENCE, {"error": MISSING}),
        ("/grps/v1/infer/predict", {"status": {"code": 401, "msg": MISSING, "status": "FAILURE"}}),
    ],
)
def test_rejection_has_the_error_body_of_the_protocol(client: TestClient[Litestar], path: str, body: Any) -> None:
    response = client.post(path, json={}, headers={"X-Request-ID": "r-1"})
    assert (response.status_code, response.json()) == (401, body)
    assert response.headers["www-authenticate"] == 'Bearer realm="charioteer"'
    assert response.headers["x-request-id"] == "r-1"
    forbidden = client.post(path, json={}, headers=bearer_header(READ_KEY))
    assert forbidden.status_code == 403
    assert "This needs the permission infer; screen has read" in forbidden.text
    assert "www-authenticate" not in forbidden.headers


def test_only_browsers_get_a_basic_challenge(client: TestClient[Litestar]) -> None:
    response = client.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Basic realm="charioteer", charset="UTF-8"'
    authenticated = client.get("/", headers={"Accept": "text/html"}, auth=("anybody", READ_KEY))
    assert authenticated.status_code == 200
    assert "<html" in authenticated.text


def test_root_reveals_models_only_with_a_valid_key(client: TestClient[Litestar]) -> None:
    assert client.get("/").json() == {"status": "alive"}
    assert client.get("/", headers=bearer_header("wrong")).json() == {"status": "alive"}
    assert client.get("/", headers=bearer_header(INFER_KEY)).json()["models"] == ["detector"]


class CountingProvider:
    """Count the verifications of tokens."""

    credential = "a token"

    def __init__(self) -> None:
        self.verified: list[str] = []

    def identify(self, credential: str) -> Identity:
        self.verified.append(credential)
        if credential == "wrong":
            raise unauthenticated("token", "The token is not valid")
        return Identity(name="jwt:ann", permissions=frozenset({"infer"} if credential == "good" else {"read"}))


def test_token_of_an_inference_is_verified_once() -> None:
    provider = CountingProvider()
    access = AccessControl(None, provider, RateLimiter(), RejectionLog(CollectorRegistry()))
    client, tokens = http_client(authenticated_app(access)), ["wrong", "good", "weak"]
    responses = [client.post(INFERENCE, json=inference_body(), headers=bearer_header(token)) for token in tokens]
    assert [response.status_code for response in responses] == [401, 200, 403]
    assert provider.verified == tokens


def test_body_is_not_read_before_authentication(tmp_path: Path) -> None:
    app = authenticated_app(access_with_keys(tmp_path))
    reads: list[str] = []

    async def counting_app(scope: Any, receive: Any, send: Any) -> None:
        async def counted_receive() -> Any:
            reads.append(scope["path"])
            return await receive()

        await app(scope, counted_receive, send)

    client: TestClient[ASGIApp] = TestClient(counting_app)
    assert client.post(INFERENCE, json=inference_body()).status_code == 401
    assert reads == []
    assert client.post(INFERENCE, json=inference_body(), headers=bearer_header(INFER_KEY)).status_code == 200
    assert reads


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_methods_do_not_bypass_authorization(client: TestClient[Litestar], method: str) -> None:
    for path in ("/metrics/", "/METRICS", "/metrics;a"):
        assert client.request(method, path).status_code in (401, 404, 405)
        assert client.request(method, path, headers=bearer_header(INFER_KEY)).status_code in (403, 404, 405)


def test_options_needs_no_key(client: TestClient[Litestar]) -> None:
    response = client.options("/metrics")
    assert (response.status_code, response.content) == (204, b"")


def rate_limited_access(folder: Path, **settings: Any) -> AccessControl:
    path = folder / "keys.json"
    slow_key = ApiKey(
        name="slow", sha256="0" * 64, permissions=("infer", "read", "admin"), requests_per_second=0.01, burst=2
    )
    add_key(path, "slow", slow_key)
    add_key(path, "usual", ApiKey(name="usual", sha256="0" * 64, permissions=("infer", "read")))
    access = open_access_control(AccessSettings(api_keys=path, **settings), CollectorRegistry())
    assert access is not None
    return access


def test_client_over_its_rate_is_429_with_retry_after(tmp_path: Path) -> None:
    client = http_client(authenticated_app(rate_limited_access(tmp_path)))
    assert [client.get("/v2/models", headers=bearer_header("slow")).status_code for _ in range(3)] == [200, 200, 429]
    response = client.post("/grps/v1/infer/predict", headers=bearer_header("slow"))
    assert response.json()["status"]["code"] == 429
    assert 90 <= int(response.headers["retry-after"]) <= 100
    assert "Expected at most 0.01 requests a second from slow, got more" in response.text
    # The rate counts neither reads nor other clients.
    assert client.get("/metrics", headers=bearer_header("slow")).status_code == 200
    assert {client.get("/v2/models", headers=bearer_header("usual")).status_code for _ in range(10)} == {200}


def test_rate_in_the_settings_applies_to_keys_without_their_own(tmp_path: Path) -> None:
    client = http_client(authenticated_app(rate_limited_access(tmp_path, requests_per_second=0.001, burst=1)))
    assert [client.get("/v2/models", headers=bearer_header("usual")).status_code for _ in range(2)] == [200, 429]
    assert [client.get("/v2/models", headers=bearer_header("slow")).status_code for _ in range(3)] == [200, 200, 429]
