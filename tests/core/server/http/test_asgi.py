"""What the application adds to every protocol: compression, HEAD and OPTIONS, and the header Allow on every route."""

import re
from collections.abc import Iterator

import pytest
from litestar import Litestar, get
from litestar.routes import HTTPRoute
from litestar.testing import TestClient

from app.core.server.http.asgi import HeadSupport
from tests.support.servers.auth_apps import authenticated_app

Client = TestClient[Litestar]


def encoding_and_length(client: Client, count: int, encoding: str) -> tuple[str | None, int]:
    """Return the content encoding of a response with `count` numbers, and its decoded length."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [count], "data": [1] * count}
    headers = {"accept-encoding": encoding}
    response = client.post("/v2/models/half_plus_two/infer", json={"inputs": [tensor]}, headers=headers)
    assert response.json()["outputs"][0]["data"] == [2.5] * count
    return response.headers.get("content-encoding"), len(response.content)


def test_responses_of_a_kilobyte_are_gzipped_if_the_client_accepts_it(client: Client) -> None:
    overhead = encoding_and_length(client, 1, "identity")[1] - 3 + len("[1]")
    count_of_kilobyte = (1000 - overhead) // len("2.5,") + 1
    assert 1000 <= encoding_and_length(client, count_of_kilobyte, "identity")[1] <= 1010
    assert encoding_and_length(client, count_of_kilobyte, "gzip")[0] == "gzip"
    for rejecting in ("identity", "gzip;q=0", "gzip; q=0.000, identity"):
        assert encoding_and_length(client, count_of_kilobyte, rejecting)[0] is None
    assert encoding_and_length(client, count_of_kilobyte, "identity;q=0, gzip;q=0.5")[0] == "gzip"
    assert encoding_and_length(client, count_of_kilobyte - 10, "gzip")[0] is None


def test_metrics_content_type_has_one_charset(client: Client) -> None:
    (media_type, *parameters) = client.get("/metrics").headers["content-type"].split("; ")
    assert media_type == "text/plain"
    assert [parameter for parameter in parameters if parameter.startswith("charset")] == ["charset=utf-8"]


MODEL = "echo-fp32"


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/health", "/healthz", "/ready", "/metrics", "/openapi.json", "/nowhere"),
        *("/v2", "/v2/health/ready", f"/v2/models/{MODEL}", f"/v2/models/{MODEL}/ready", "/v2/models/missing/ready"),
        *(f"/v1/models/{MODEL}", "/grps/v1/health/live", "/grps/v1/health/ready"),
    ],
)
def test_head_has_status_and_content_type_of_get_without_body(client: Client, path: str) -> None:
    get_response, head_response = client.get(path), client.head(path)
    assert head_response.status_code == get_response.status_code != 405
    assert head_response.headers.get("content-type") == get_response.headers.get("content-type")
    assert head_response.content == b""


@pytest.mark.parametrize("path", ["/inferences", "//inferences", "/tail/events", "//tail/events", "/tail//events"])
def test_head_of_endless_responses_is_405(path: str) -> None:
    @get(["/inferences", "/tail/events", "/metrics"], sync_to_thread=False)
    def handle() -> str:
        return "begun"

    app = HeadSupport([handle], openapi_config=None)
    app.before_routes = app.answer_other
    app.costly_prefixes = ("/inferences", "/tail")
    with TestClient(app) as client:
        assert client.get(f"http://testserver.local{path}").text == "begun"
        assert client.head(f"http://testserver.local{path}").status_code == 405
        assert client.head("http://testserver.local//metrics").status_code == 200


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
DETECTOR = "detector"
PATHS = sorted(
    {
        re.sub(r"\{[^}]*\}", "1", route.path.replace("{target:str}", DETECTOR))
        for route in authenticated_app(None).routes
        if isinstance(route, HTTPRoute)
    }
)


@pytest.fixture(scope="module")
def all_routes() -> Iterator[Client]:
    with TestClient(authenticated_app(None)) as client:
        yield client


def listed_methods(header: str) -> list[str]:
    methods = header.split(", ")
    assert methods == sorted(set(methods))
    return methods


@pytest.mark.parametrize("path", PATHS)
def test_allow_lists_exactly_the_served_methods(all_routes: Client, path: str) -> None:
    options = all_routes.options(path)
    assert options.status_code == 204
    allowed = listed_methods(options.headers["allow"])
    assert "OPTIONS" in allowed
    for method in METHODS:
        response = all_routes.request(method, path)
        assert (response.status_code != 405) is (method in allowed), method
        if response.status_code == 405:
            assert listed_methods(response.headers["allow"]) == allowed


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_allow_of_a_verb_lists_only_the_methods_that_serve_it(all_routes: Client, verb: str) -> None:
    path = f"/v1/models/{DETECTOR}:{verb}"
    assert listed_methods(all_routes.options(path).headers["allow"]) == ["OPTIONS", "POST"]
    assert all_routes.post(path).status_code != 405
    for method in set(METHODS) - {"POST"}:
        response = all_routes.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST"), method
    assert all_routes.get(path).json() == {"error": f"GET is not served at {path}"}


def test_unknown_verb_stays_part_of_the_model_name(all_routes: Client) -> None:
    assert all_routes.get(f"/v1/models/{DETECTOR}:fly").status_code == 404
