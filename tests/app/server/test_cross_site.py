"""What pages of other sites have a browser send."""

import pytest
from litestar import Litestar, get, post
from litestar.testing import TestClient
from litestar.types import ASGIApp

from app.server.cross_site import without_cross_site


@post("/unload", status_code=200)
async def unload() -> str:
    """Something that changes the server."""
    return "unloaded"


@get("/ready")
async def ready() -> str:
    """Something that does not."""
    return "ready"


@pytest.fixture
def client() -> TestClient[ASGIApp]:
    return TestClient(without_cross_site(Litestar([unload, ready], openapi_config=None)))


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site "])
def test_what_another_page_posts_is_refused(client: TestClient[ASGIApp], site: str) -> None:
    response = client.post("/unload", headers={"Sec-Fetch-Site": site})
    assert response.status_code == 403
    assert response.json()["error"].startswith("A page of another site sent this")


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}])
def test_the_servers_own_page_and_other_clients_are_answered(
    client: TestClient[ASGIApp], headers: dict[str, str]
) -> None:
    assert client.post("/unload", headers=headers).text == "unloaded"


def test_reading_is_for_everybody(client: TestClient[ASGIApp]) -> None:
    assert client.get("/ready", headers={"Sec-Fetch-Site": "cross-site"}).text == "ready"
