"""What the service says of itself: every route, and what callers have to show."""

from typing import Any

import pytest
from litestar import Litestar
from litestar.routes import HTTPRoute

from tests.app.server.access.test_routes import ADMIN, INFER, OPEN
from tests.app.server.access.test_routes import READ as READING
from tests.support.secured import READ, access_by, bearer, client_of, secured

SCHEMES = ("bearer", "key", "basic")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Litestar:
    return secured(access_by(tmp_path_factory.mktemp("keys")))


@pytest.fixture(scope="module")
def document(app: Litestar) -> dict[str, Any]:
    return client_of(app).get("/schema", headers=bearer(READ)).json()


def written(route: str) -> tuple[str, str]:
    """The path of a route as OpenAPI has it, and the method."""
    method, _, path = route.partition(" ")
    for name in ("target", "version", "id"):
        path = path.replace(f"{{{name}:str}}", f"{{{name}}}")
    return path, method.lower()


def test_every_route_but_the_pages_is_described(app: Litestar, document: dict[str, Any]) -> None:
    told = {(path.partition(":")[0], method) for path, methods in document["paths"].items() for method in methods}
    served = {
        (written(f"GET {route.path}")[0], method.lower())
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        for method in handler.http_methods - {"OPTIONS"}
    }
    pages = {each for each in served if each[0].startswith(("/page", "/grps/v1/monitor", "/openapi.json"))}
    assert served - told == pages


@pytest.mark.parametrize(("routes", "permission"), [(READING, "read"), (ADMIN, "admin"), (INFER, "infer")])
def test_what_an_operation_needs_is_said(document: dict[str, Any], routes: set[str], permission: str) -> None:
    said = 0
    for path, method in map(written, routes):
        for name, operations in document["paths"].items():
            if name.partition(":")[0] != path or method not in operations:
                continue
            operation = operations[method]
            assert operation["security"] == [{each: [permission]} for each in SCHEMES], name
            assert {"401", "403", "429"} <= set(operation["responses"]), name
            said += 1
    assert said >= 5


def test_what_is_open_is_said(document: dict[str, Any]) -> None:
    for path, method in map(written, OPEN):
        operation = document["paths"][path][method]
        assert (operation["security"], "401" in operation["responses"]) == ([], False), path
    schemes = document["components"]["securitySchemes"]
    assert (tuple(schemes), schemes["key"]["name"]) == (SCHEMES, "X-API-Key")


def test_where_nobody_is_asked_nothing_is_said_of_keys() -> None:
    found = client_of(secured(None)).get("/schema").text
    assert "securitySchemes" not in found
    assert '"security"' not in found


def test_the_query_is_described(document: dict[str, Any]) -> None:
    asked = document["paths"]["/inferences"]["get"]["parameters"]
    found = {each["name"]: each["schema"] for each in asked if each["in"] == "query"}
    assert {"label", "since", "min-score", "where", "limit", "after"} <= set(found)
    assert found["limit"] == {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
    predict = document["paths"]["/grps/v1/infer/predict"]["post"]["parameters"]
    assert [each["name"] for each in predict] == ["model", "streaming", "return-ndarray"]
    picture = document["paths"]["/inferences/{id}/image"]["get"]["responses"]["200"]["content"]
    assert "image/jpeg" in picture
    assert "application/json" not in picture
