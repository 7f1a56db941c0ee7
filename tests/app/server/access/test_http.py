"""Who is let in over HTTP, and how those are told who are not."""

import base64
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry

from app.protocols import LISTENERS
from app.server.access.access import Access, open_access
from app.server.access.http import HttpAccess
from app.server.access.key_file import add_key
from app.server.access.keys import Key
from app.server.asgi import create_listener_app
from app.settings.access import AccessSettings
from tests.app.server.access.issuer import AUDIENCE, ISSUER, STRANGER, claims, key_set_file, token
from tests.support.grpc_server import MAX_REQUEST_BYTES, built
from tests.support.secured import (
    INFER,
    READ,
    access_by,
    bearer,
    client_of,
    inputs,
    key_file,
    secured,
)

INFERENCE = "/v2/models/m-detector/infer"
MISSING = "Expected a key or a token in Authorization or X-API-Key, got neither"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient[Litestar]:
    return client_of(secured(access_by(tmp_path_factory.mktemp("keys"))))


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {INFER}"},
        {"AUTHORIZATION": f"bearer {INFER}"},
        {"X-Api-Key": INFER},
        {"Authorization": f"Basic {base64.b64encode(f':{INFER}'.encode()).decode()}"},
    ],
)
def test_a_key_is_shown_in_three_ways(client: TestClient[Litestar], headers: dict[str, str]) -> None:
    assert client.post(INFERENCE, json=inputs(), headers=headers).status_code == 200


@pytest.mark.parametrize("query", [f"api_key={INFER}", f"access_token={INFER}", f"X-API-Key={INFER}", f"key={INFER}"])
def test_a_key_in_a_query_or_a_cookie_is_none(client: TestClient[Litestar], query: str) -> None:
    assert client.post(f"{INFERENCE}?{query}", json=inputs()).status_code == 401
    assert client.post(INFERENCE, json=inputs(), headers={"Cookie": query}).status_code == 401


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (INFERENCE, {"error": MISSING}),
        ("/v2/models/detector/infer", {"error": MISSING}),
        ("/v1/models/detector:predict", {"error": MISSING}),
        ("/grps/v1/infer/predict", {"status": {"code": 401, "msg": MISSING, "status": "FAILURE"}}),
        ("/page/tensorflow-serving/v1/models/detector:predict", {"error": MISSING}),
    ],
)
def test_every_protocol_refuses_in_its_own_shape(client: TestClient[Litestar], path: str, body: Any) -> None:
    refused = client.post(path, json={}, headers={"X-Request-ID": "r-1"})
    assert (refused.status_code, refused.json()) == (401, body)
    assert refused.headers["www-authenticate"] == 'Bearer realm="charioteer"'
    assert refused.headers["x-request-id"] == "r-1"
    forbidden = client.post(path, json={}, headers=bearer(READ))
    assert forbidden.status_code == 403
    assert "This needs the permission infer; screen has read" in forbidden.text
    assert "www-authenticate" not in forbidden.headers


def test_only_browsers_are_led_to_ask_for_a_password(client: TestClient[Litestar]) -> None:
    asked = client.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
    assert asked.status_code == 401
    assert asked.headers["www-authenticate"] == 'Basic realm="charioteer", charset="UTF-8"'
    shown = client.get("/", headers={"Accept": "text/html"}, auth=("anybody", READ))
    assert shown.status_code == 200
    assert "<html" in shown.text


def test_a_stranger_hears_no_more_than_that_it_lives(client: TestClient[Litestar]) -> None:
    assert client.get("/").json() == {"status": "alive"}
    assert client.get("/", headers=bearer("wrong")).json() == {"status": "alive"}
    assert client.get("/", headers=bearer(INFER)).json()["models"] == ["detector"]


def test_nothing_of_a_body_is_read_before_its_sender_is_known(tmp_path: Path) -> None:
    app = secured(access_by(tmp_path))
    asked: list[str] = []

    async def spied(scope: Any, receive: Any, send: Any) -> None:
        async def counted() -> Any:
            asked.append(scope["path"])
            return await receive()

        await app(scope, counted, send)

    client: TestClient[ASGIApp] = TestClient(spied)
    assert client.post(INFERENCE, json=inputs()).status_code == 401
    assert asked == []
    assert client.post(INFERENCE, json=inputs(), headers=bearer(INFER)).status_code == 200
    assert asked


@pytest.mark.parametrize("path", ["/%6detrics", "/metrics/", "/./metrics", "/x/../metrics", "/METRICS", "/metrics;a"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_no_way_of_writing_a_path_leads_past(client: TestClient[Litestar], method: str, path: str) -> None:
    assert client.request(method, path).status_code in (401, 404, 405)
    assert client.request(method, path, headers=bearer(INFER)).status_code in (403, 404, 405)


def test_a_path_tells_its_methods_to_anybody_and_nothing_else(client: TestClient[Litestar]) -> None:
    told = client.options("/metrics")
    assert (told.status_code, told.content) == (204, b"")
    assert client.options("/page/events").status_code == 401


def test_the_port_of_tensorflow_serving_asks_as_well(tmp_path: Path) -> None:
    app = create_listener_app(built(("detector",)), LISTENERS[0], MAX_REQUEST_BYTES, HttpAccess(access_by(tmp_path)))
    with TestClient(app) as client:
        for path in ("/v1/models/detector", "/v1/models/detector/metadata", "/v1/nothing", "/x", "/"):
            refused = client.get(path)
            assert (refused.status_code, refused.json()) == (401, {"error": MISSING})
        assert client.get("/v1/models/detector", headers=bearer(INFER)).status_code == 200
        assert client.get("/monitoring/prometheus/metrics", headers=bearer(INFER)).status_code == 403
        assert client.get("/monitoring/prometheus/metrics", headers=bearer(READ)).status_code == 200
        assert client.post("/v1/models/detector:predict", headers=bearer(READ)).status_code == 403
        # A preflight is answered to everybody; the metrics are not, whatever the method.
        assert client.options("/v1/models/detector", headers={"Origin": "https://app.example"}).status_code == 200
        for method in ("OPTIONS", "HEAD", "POST", "PUT", "DELETE"):
            assert client.request(method, "/monitoring/prometheus/metrics").status_code == 401, method


def limited(folder: Path, **settings: Any) -> Access:
    path = folder / "keys.json"
    kind = Key(name="slow", sha256="0" * 64, permissions=("infer", "read", "admin"), requests_per_second=0.01, burst=2)
    add_key(path, "slow", kind)
    add_key(path, "usual", Key(name="usual", sha256="0" * 64, permissions=("infer", "read")))
    found = open_access(AccessSettings(api_keys=path, **settings), CollectorRegistry())
    assert found is not None
    return found


def test_who_had_their_share_is_told_when_to_come_back(tmp_path: Path) -> None:
    client = client_of(secured(limited(tmp_path)))
    assert [client.get("/v2/models", headers=bearer("slow")).status_code for _ in range(3)] == [200, 200, 429]
    refused = client.post("/grps/v1/infer/predict", headers=bearer("slow"))
    assert refused.json()["status"]["code"] == 429
    assert 90 <= int(refused.headers["retry-after"]) <= 100
    assert "Expected at most 0.01 requests a second from slow, got more" in refused.text
    # Who reads is not counted, nor are others.
    assert client.get("/metrics", headers=bearer("slow")).status_code == 200
    assert {client.get("/v2/models", headers=bearer("usual")).status_code for _ in range(10)} == {200}


def test_everybody_may_be_given_a_rate(tmp_path: Path) -> None:
    client = client_of(secured(limited(tmp_path, requests_per_second=0.001, burst=1)))
    assert [client.get("/v2/models", headers=bearer("usual")).status_code for _ in range(2)] == [200, 429]
    assert [client.get("/v2/models", headers=bearer("slow")).status_code for _ in range(3)] == [200, 200, 429]


def test_what_goes_by_way_of_the_page_counts_once(tmp_path: Path) -> None:
    client = client_of(secured(limited(tmp_path)))
    path = "/page/tensorflow-serving/v1/models/detector"
    assert [client.get(path, headers=bearer("slow")).status_code for _ in range(3)] == [200, 200, 429]


def test_tokens_are_taken_beside_keys(tmp_path: Path) -> None:
    settings = AccessSettings(
        api_keys=key_file(tmp_path), jwks=key_set_file(tmp_path), jwt_issuer=ISSUER, jwt_audience=AUDIENCE
    )
    client = client_of(secured(open_access(settings, CollectorRegistry())))
    assert client.post(INFERENCE, json=inputs(), headers=bearer(token())).status_code == 200
    assert client.post(INFERENCE, json=inputs(), headers={"X-API-Key": token()}).status_code == 200
    assert client.post(INFERENCE, json=inputs(), headers=bearer(INFER)).status_code == 200
    refused = client.post(INFERENCE, json=inputs(), headers=bearer(token(key=STRANGER)))
    assert (refused.status_code, refused.json()["error"]) == (401, "The token is not taken: its signature does not fit")
    forbidden = client.get("/metrics", headers=bearer(token(claims(scope="infer"))))
    assert forbidden.json()["error"] == "This needs the permission read; jwt:ann has infer"
    nothing = client.get("/metrics", headers=bearer(token(claims(scope="openid"))))
    assert nothing.json()["error"] == "This needs the permission read; jwt:ann has none"
