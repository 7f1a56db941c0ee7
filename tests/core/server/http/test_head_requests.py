"""HEAD responses equal GET responses without the body."""

import pytest
from litestar import Litestar, get
from litestar.testing import TestClient

from app.core.server.http.asgi import HeadSupport

MODEL = "echo-fp32"


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/health", "/healthz", "/ready", "/metrics", "/docs", "/openapi.json", "/nowhere"),
        *("/v2", "/v2/health/ready", f"/v2/models/{MODEL}", f"/v2/models/{MODEL}/ready", "/v2/models/missing/ready"),
        *(f"/v1/models/{MODEL}", "/grps/v1/health/live", "/grps/v1/health/ready"),
    ],
)
def test_head_has_status_and_content_type_of_get_without_body(client: TestClient[Litestar], path: str) -> None:
    get_response, head_response = client.get(path), client.head(path)
    assert head_response.status_code == get_response.status_code != 405
    assert head_response.headers.get("content-type") == get_response.headers.get("content-type")
    assert head_response.content == b""


@pytest.mark.parametrize("path", ["/inferences", "//inferences", "/page/events", "//page/events", "/page//events"])
def test_head_of_endless_responses_is_405(path: str) -> None:
    @get(["/inferences", "/page/events", "/metrics"], sync_to_thread=False)
    def handle() -> str:
        return "begun"

    app = HeadSupport([handle], openapi_config=None)
    app.costly_prefixes = ("/inferences", "/page")
    with TestClient(app) as client:
        assert client.get(f"http://testserver.local{path}").text == "begun"
        assert client.head(f"http://testserver.local{path}").status_code == 405
        assert client.head("http://testserver.local//metrics").status_code == 200
