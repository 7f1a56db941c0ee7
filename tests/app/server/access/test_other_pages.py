"""What pages of other origins may have a browser send to a server that asks who comes."""

from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from litestar.types import ASGIApp

from app.server.cross_site import without_cross_site
from app.server.page.control import PAGE_HEADER
from tests.support.grpc_server import built
from tests.support.secured import ALL, INFER, access_by, bearer, client_of, inputs, secured

INFERENCE = "/v2/models/m-detector/infer"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient[Litestar]:
    return client_of(secured(access_by(tmp_path_factory.mktemp("keys"))))


LISTED, OTHER = "https://app.example", "https://evil.example"


@pytest.fixture
def shared(tmp_path: Path) -> TestClient[ASGIApp]:
    app = without_cross_site(secured(access_by(tmp_path), origins=[LISTED]), hosts=(), origins=[LISTED])
    return TestClient(app, base_url="http://127.0.0.1:8080")


def test_pages_of_listed_origins_may_ask_and_read(shared: TestClient[ASGIApp]) -> None:
    wish = {
        "Origin": LISTED,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    asked = shared.options(INFERENCE, headers=wish)
    assert asked.headers["access-control-allow-origin"] == LISTED
    assert "authorization" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in asked.headers
    cross_site = {"Origin": LISTED, "Sec-Fetch-Site": "cross-site"}
    answer = shared.post(INFERENCE, json=inputs(), headers={**cross_site, **bearer(INFER)})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, LISTED)
    refused = shared.post("/grps/v1/health/online", headers={**cross_site, "Content-Type": "text/plain"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, LISTED)


@pytest.mark.parametrize(
    "names",
    [
        "chariot-inference-parameters,chariot-inference-base-id",
        "ce-id,ce-source,ce-specversion,ce-type,ce-time,ce-datacontenttype,ce-subject,ce-dataschema",
        "inference-header-content-length,x-request-id,x-request-timeout-ms,traceparent,tracestate",
    ],
)
def test_pages_of_listed_origins_may_send_the_headers_of_every_protocol(
    shared: TestClient[ASGIApp], names: str
) -> None:
    wish = {"Origin": LISTED, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": names}
    asked = shared.options(INFERENCE, headers=wish)
    assert asked.status_code == 204
    assert set(names.split(",")) <= set(asked.headers["access-control-allow-headers"].split(", "))


def test_a_listed_origin_does_nothing_with_the_password_that_a_browser_keeps(shared: TestClient[ASGIApp]) -> None:
    path, kept = "/grps/v1/health/online", ("anybody", ALL)
    for headers in ({"Origin": LISTED, "Sec-Fetch-Site": "cross-site"}, {"Origin": LISTED}):
        assert shared.post(path, headers=headers, auth=kept).status_code == 403
        assert shared.post(path, headers={**headers, **bearer(ALL)}).status_code == 200
    own = {"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}
    assert shared.post(path, headers=own, auth=kept).status_code == 200


def test_pages_of_others_may_not(shared: TestClient[ASGIApp]) -> None:
    wish = {"Origin": OTHER, "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in shared.options(INFERENCE, headers=wish).headers
    simple = {"Origin": OTHER, "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain", **bearer(ALL)}
    assert shared.post("/v2/repository/models/detector/unload", headers=simple).status_code == 403
    page = {"Origin": LISTED, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": PAGE_HEADER}
    assert PAGE_HEADER not in shared.options("/page/repository/a/load", headers=page).headers.get(
        "access-control-allow-headers", ""
    )


def test_without_a_list_nothing_is_said_of_origins(client: TestClient[Litestar]) -> None:
    answer = client.get("/health", headers={"Origin": LISTED})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("known", [True, False])
def test_a_picture_on_another_page_takes_no_server_offline(tmp_path: Path, known: bool) -> None:
    engine = built(("detector",))
    client = client_of(secured(access_by(tmp_path) if known else None, engine))
    # GRPS has these for GET as well.
    path = "/grps/v1/health/offline"
    for site in ("cross-site", "same-site"):
        refused = client.get(path, headers={**bearer(ALL), "Sec-Fetch-Site": site})
        assert (refused.status_code, refused.json()["status"]["code"]) == (403, 403)
    # To another machine without TLS, browsers do not say where it comes from, but send the password that they keep.
    assert client.get(path, auth=("anybody", ALL)).status_code == 403
    assert engine.online
    assert client.get(path, headers={**bearer(ALL), "Sec-Fetch-Site": "none"}).status_code == 200
    assert not engine.online
    assert client.post("/grps/v1/health/online", auth=("anybody", ALL)).status_code == 200
    assert engine.online
