"""Pages of other sites cannot take the server offline."""

import pytest
from litestar.testing import TestClient
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry

from app.core.server.http.asgi import Entry, create_app
from app.plugins.grps.routes import Grps
from tests.support.servers.grpc_server import build_engine

CROSS_SITE = {"Sec-Fetch-Site": "cross-site"}


@pytest.fixture(scope="module")
def client() -> TestClient[ASGIApp]:
    app = create_app(build_engine(("detector",)), [Grps()], CollectorRegistry(), 1000, entry=Entry(hosts=()))
    return TestClient(app, base_url="http://127.0.0.1:8080")


@pytest.mark.parametrize("action", ["online", "offline"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Referer": "http://evil.example/127.0.0.1:8080/"},
        {"Referer": "http://127.0.0.1:8501/", "Origin": "http://127.0.0.1:8080"},
        CROSS_SITE,
    ],
)
def test_readiness_switch_rejects_foreign_pages(
    client: TestClient[ASGIApp], action: str, method: str, headers: dict[str, str]
) -> None:
    for path in (f"/grps/v1/health/{action}", f"//grps//v1/health/{action}/"):
        assert client.request(method, f"http://127.0.0.1:8080{path}", headers=headers).status_code == 403


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://127.0.0.1:8080", "Referer": "http://127.0.0.1:8080/docs"}])
def test_readiness_switch_accepts_get_from_own_origin_and_clients(
    client: TestClient[ASGIApp], headers: dict[str, str]
) -> None:
    for action in ("offline", "online"):
        assert client.get(f"/grps/v1/health/{action}", headers=headers).status_code == 200
