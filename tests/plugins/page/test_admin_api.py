"""Loading and unloading models from the web page, and who may do it."""

from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.engine.models.repository import Repository
from tests.plugins.page.pages import app_of_page, model_source, repository_of

ORIGIN = "http://127.0.0.1:8080"
LOAD = "/page/repository/detector/load"
UNLOAD = "/page/repository/detector/unload"
PAGE_HEADERS = {"host": "127.0.0.1:8080", "charioteer-page": ORIGIN, "sec-fetch-site": "same-origin"}


def detector_repository() -> Repository:
    return repository_of(model_source("detector"), unloaded=[model_source("classifier")])


def page_client(admin: bool | None) -> TestClient[Litestar]:
    return TestClient(app_of_page(detector_repository(), admin=admin))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with page_client(None) as client:
        yield client


def states(client: TestClient[Litestar]) -> dict[str, str]:
    return {version["name"]: version["state"] for version in client.get("/page/repository").json()["versions"]}


def test_page_loads_and_unloads_models() -> None:
    loaded = {"name": "detector", "version": "1", "state": "READY", "reason": "", "enabled": True}
    unloaded = {"name": "classifier", "version": "1", "state": "UNAVAILABLE", "reason": "not loaded", "enabled": False}
    with page_client(None) as client:
        repository = client.get("/page/repository", headers=PAGE_HEADERS).json()
        assert repository == {"admin": True, "versions": [loaded, unloaded]}
        assert client.post(UNLOAD, headers=PAGE_HEADERS).status_code == 200
        assert states(client) == {"detector": "UNAVAILABLE", "classifier": "UNAVAILABLE"}
        assert client.post(LOAD, headers=PAGE_HEADERS).status_code == 200
        assert client.post("/page/repository/classifier/load", headers=PAGE_HEADERS).status_code == 200
        assert states(client) == {"detector": "READY", "classifier": "READY"}


def test_load_of_an_unknown_model_is_404(client: TestClient[Litestar]) -> None:
    response = client.post("/page/repository/lost/load", headers=PAGE_HEADERS)
    assert response.status_code == 404
    assert response.json() == {"error": "Nothing in the repository is called 'lost'"}


FOREIGN = {
    "a form of another site": {"charioteer-page": ""},
    "curl or a form of an old browser": {"charioteer-page": "", "sec-fetch-site": ""},
    "another site": {"sec-fetch-site": "cross-site"},
    "another port": {"sec-fetch-site": "same-site"},
    "another port, by its origin": {"sec-fetch-site": "", "origin": "http://127.0.0.1:9999"},
    "a sandboxed frame": {"sec-fetch-site": "", "origin": "null"},
    "DNS rebinding": {"host": "rebound.example:8080", "charioteer-page": "http://rebound.example:8080"},
    "DNS rebinding with a forged page header": {"host": "rebound.example:8080"},
    "behind a public proxy": {"charioteer-page": "https://models.example"},
    "not an address": {"charioteer-page": "http://["},
    "a user name": {"charioteer-page": "http://x@127.0.0.1:8080"},
    "text after an address": {"host": "[::1].example"},
    "no host": {"host": ""},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_load_is_403_for_requests_that_are_not_from_the_page(
    client: TestClient[Litestar], headers: dict[str, str]
) -> None:
    all_headers = {name: value for name, value in {**PAGE_HEADERS, **headers}.items() if value or name == "host"}
    response = client.post(UNLOAD, headers=all_headers)
    assert response.status_code == 403
    # Requests that a browser marks as those of another site are refused before they reach the page.
    assert response.json()["error"].startswith(("Only ", "A page of another site"))
    assert client.get("/page/repository", headers=all_headers).json()["admin"] is False
    assert states(client)["detector"] == "READY"


def test_preflight_of_other_origins_gets_no_cors_header(client: TestClient[Litestar]) -> None:
    preflight = {"origin": "http://evil.example", "access-control-request-headers": "charioteer-page"}
    response = client.options(UNLOAD, headers={**preflight, "access-control-request-method": "POST"})
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert client.get(UNLOAD, headers=PAGE_HEADERS).status_code == 405


def test_admin_true_allows_the_page_on_any_host() -> None:
    elsewhere = {"host": "models.example", "charioteer-page": "https://models.example"}
    with page_client(True) as client:
        assert client.post(UNLOAD, headers={**elsewhere, "origin": "https://models.example"}).status_code == 200
        assert client.post(LOAD, headers={**elsewhere, "origin": "https://evil.example"}).status_code == 403
        assert client.post(LOAD, headers={"host": "models.example"}).status_code == 403


def test_admin_false_rejects_every_change() -> None:
    with page_client(False) as client:
        response = client.post(UNLOAD, headers=PAGE_HEADERS)
        assert response.status_code == 403
        assert response.json() == {"error": "Loading and unloading from the page is switched off here"}
        assert client.get("/page/repository", headers=PAGE_HEADERS).json()["admin"] is False
