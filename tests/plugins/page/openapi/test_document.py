"""The OpenAPI document: every route with its security."""

from collections import Counter
from typing import Any

import pytest
from litestar import Litestar
from litestar.routes import HTTPRoute

from tests.core.server.auth.test_routes import OPEN, PROTECTED
from tests.support.servers.auth_apps import READ_KEY, access_with_keys, authenticated_app, bearer_header, http_client

SCHEMES = ("bearer", "key", "basic")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Litestar:
    return authenticated_app(access_with_keys(tmp_path_factory.mktemp("keys")))


@pytest.fixture(scope="module")
def document(app: Litestar) -> dict[str, Any]:
    found, other = (
        http_client(app).get(path, headers=bearer_header(READ_KEY)).json()
        for path in ("/schema", "/schema/openapi.json")
    )
    assert found == other
    return found


def openapi_path_and_method(route: str) -> tuple[str, str]:
    """Return the path of a route as OpenAPI writes it, and its method."""
    method, _, path = route.partition(" ")
    for name in ("target", "version", "id", "region"):
        path = path.replace(f"{{{name}:str}}", f"{{{name}}}")
    return path, method.lower()


def test_every_route_except_the_web_page_is_documented(app: Litestar, document: dict[str, Any]) -> None:
    documented = {(path.partition(":")[0], method) for path, methods in document["paths"].items() for method in methods}
    served = {
        (openapi_path_and_method(f"GET {route.path}")[0], method.lower())
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        for method in handler.http_methods - {"OPTIONS"}
    }
    pages = {route for route in served if route[0].startswith(("/page", "/guide", "/grps/v1/monitor", "/openapi.json"))}
    assert served - documented == pages


def test_every_operation_has_an_id_of_its_own_a_summary_and_a_response(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations) > 18
    assert [operation for operation in operations if not operation["summary"]] == []
    assert [operation for operation in operations if not operation["responses"]["200"]] == []
    paths = document["paths"]
    assert paths["/v1/models/{target}:predict"]["post"]["operationId"] == "post_v1_models_target_predict"
    assert paths["/"]["get"]["operationId"] == "get"


def test_operations_document_their_permission_and_rejections(document: dict[str, Any]) -> None:
    checked: Counter[str] = Counter()
    for route, permission in PROTECTED:
        path, method = openapi_path_and_method(route)
        for name, operations in document["paths"].items():
            if name.partition(":")[0] == path and method in operations:
                assert operations[method]["security"] == [{scheme: [permission]} for scheme in SCHEMES], name
                assert {"401", "403", "429"} <= set(operations[method]["responses"]), name
                checked[permission] += 1
    assert min(checked[permission] for permission in ("read", "admin", "infer")) >= 5


def test_open_operation_documents_no_security(document: dict[str, Any]) -> None:
    for path, method in map(openapi_path_and_method, OPEN):
        operation = document["paths"][path][method]
        assert (operation["security"], "401" in operation["responses"]) == ([], False), path
    schemes = document["components"]["securitySchemes"]
    assert (tuple(schemes), schemes["key"]["name"]) == (SCHEMES, "X-API-Key")


def test_document_without_authentication_has_no_security_schemes() -> None:
    document_text = http_client(authenticated_app(None)).get("/schema").text
    assert "securitySchemes" not in document_text
    assert '"security"' not in document_text


def test_request_bodies_are_required_except_where_the_server_has_defaults(document: dict[str, Any]) -> None:
    required = {
        path: operation["requestBody"]["required"]
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if "requestBody" in operation
    }
    without_message = {f"/grps/v1/health/{name}" for name in ("live", "ready", "online", "offline")}
    optional = {*without_message, "/grps/v1/metadata/server", "/v2/repository/index"}
    assert {path for path in required if not required[path]} == optional
    assert required["/v2/models/{target}/infer"]


def test_media_types_of_answers_are_not_accepted_in_requests(document: dict[str, Any]) -> None:
    for path in ("/v1/chat/completions", "/openai/v1/chat/completions"):
        operation = document["paths"][path]["post"]
        assert list(operation["requestBody"]["content"]) == ["application/json"]
        assert "text/event-stream" in operation["responses"]["200"]["content"]
    infer = document["paths"]["/v2/models/{target}/infer"]["post"]
    assert list(infer["requestBody"]["content"]) == ["application/json", "application/octet-stream"]
    # Two protocols share this path.
    assert infer["tags"] == ["chariot-v2-kserve", "kserve-v2"]
    assert len(infer["requestBody"]["content"]["application/json"]["schema"]["anyOf"]) == 2


def test_query_parameters_of_inferences_are_documented(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/inferences"]["get"]["parameters"]
    schemas = {parameter["name"]: parameter["schema"] for parameter in parameters if parameter["in"] == "query"}
    assert {"label", "since", "min-score", "where", "limit", "after"} <= set(schemas)
    assert schemas["limit"] == {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
    predict = document["paths"]["/grps/v1/infer/predict"]["post"]["parameters"]
    assert [parameter["name"] for parameter in predict] == ["model", "streaming", "return-ndarray"]
