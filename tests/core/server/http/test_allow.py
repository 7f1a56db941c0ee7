"""The Allow header of OPTIONS and 405 responses, on every route."""

import re
from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.routes import HTTPRoute
from litestar.testing import TestClient

from tests.support.servers.auth_apps import authenticated_app

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MODEL = "detector"
PATHS = sorted(
    {
        re.sub(r"\{[^}]*\}", "1", route.path.replace("{target:str}", MODEL))
        for route in authenticated_app(None).routes
        if isinstance(route, HTTPRoute)
    }
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(authenticated_app(None)) as client:
        yield client


def listed_methods(header: str) -> list[str]:
    methods = header.split(", ")
    assert methods == sorted(set(methods))
    return methods


@pytest.mark.parametrize("path", PATHS)
def test_allow_lists_exactly_the_served_methods(client: TestClient[Litestar], path: str) -> None:
    options = client.options(path)
    assert options.status_code == 204
    allowed = listed_methods(options.headers["allow"])
    assert "OPTIONS" in allowed
    for method in METHODS:
        response = client.request(method, path)
        assert (response.status_code != 405) is (method in allowed), method
        if response.status_code == 405:
            assert listed_methods(response.headers["allow"]) == allowed


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_allow_of_a_verb_lists_only_the_methods_that_serve_it(client: TestClient[Litestar], verb: str) -> None:
    path = f"/v1/models/{MODEL}:{verb}"
    assert listed_methods(client.options(path).headers["allow"]) == ["OPTIONS", "POST"]
    assert client.post(path).status_code != 405
    for method in set(METHODS) - {"POST"}:
        response = client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST"), method
    assert client.get(path).json() == {"error": f"GET is not served at {path}"}


def test_unknown_verb_stays_part_of_the_model_name(client: TestClient[Litestar]) -> None:
    assert client.get(f"/v1/models/{MODEL}:fly").status_code == 404


def test_allow_of_page_events_is_get_only(client: TestClient[Litestar]) -> None:
    for method in ("HEAD", "POST", "OPTIONS"):
        response = client.request(method, "/page/events")
        assert (response.status_code, response.headers["allow"]) == (405, "GET")
