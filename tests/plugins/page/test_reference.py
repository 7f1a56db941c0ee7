"""The HTML page of the OpenAPI document."""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.hooks import Parts
from app.plugins.page.reference import REFERENCE_OPERATION, reference_handler, reference_page
from tests.support.servers.apps import app_with_parts
from tests.support.servers.auth_apps import READ_KEY, access_with_keys, authenticated_app, bearer_header, http_client
from tests.support.servers.grpc_server import build_engine

Client = TestClient[Litestar]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    parts = Parts(handlers=(reference_handler(),), operations=(REFERENCE_OPERATION,))
    with TestClient(app_with_parts(build_engine(("detector",)), parts)) as client:
        yield client


@pytest.fixture(scope="module")
def html(client: Client) -> str:
    response = client.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    return response.text


def test_every_operation_and_schema_is_shown(client: Client, html: str) -> None:
    document = client.get("/schema").json()
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"<b>{method.upper()}</b> <code>{path}</code>" in html
    for name in document["components"]["schemas"]:
        assert f'<details id="schema-{name}" open>' in html


def test_links_resolve_to_anchors_on_the_page(client: Client, html: str) -> None:
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    links = set(re.findall(r' href="([^"]+)"', html))
    assert {link for link in links if not link.startswith("#")} == {"schema/openapi.json"}
    assert {link.removeprefix("#") for link in links if link.startswith("#")} <= set(ids)
    assert client.get("/schema/openapi.json").status_code == 200


def test_page_has_no_scripts_and_loads_no_files(client: Client, html: str) -> None:
    assert not re.search(r"<(script|link|img|iframe)|@import|url\(| on\w+=| style=", html)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = client.get("/docs").headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


def test_text_of_the_document_is_escaped() -> None:
    operation: dict[str, Any] = {"tags": ["t"], "summary": "<script>", "parameters": [], "responses": {}}
    document: dict[str, Any] = {"info": {"title": "<b>", "version": "1"}, "tags": [], "components": {"schemas": {}}}
    html = reference_page({**document, "paths": {"/<i>": {"get": operation}}}).decode()
    assert not re.search("<script>|<i>", html)
    assert "&lt;script&gt;" in html


def test_permissions_are_shown_only_with_authentication(html: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    client = http_client(authenticated_app(access_with_keys(tmp_path_factory.mktemp("keys"))))
    assert client.get("/docs").status_code == 401
    assert "Permission: <code>admin</code>" in client.get("/docs", headers=bearer_header(READ_KEY)).text
    assert "Permission:" not in html


def test_openapi_json_redirects_to_the_schema(client: Client) -> None:
    response = client.get("/openapi.json", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (307, "schema/openapi.json")
    assert response.content == b""
    assert client.get("/openapi.json", follow_redirects=True).json() == client.get("/schema").json()
