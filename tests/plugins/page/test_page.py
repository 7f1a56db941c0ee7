"""Files of the web page and of its guide: who gets them, with which headers, and on which addresses."""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.assembly.service import Service
from app.core.hooks import Page
from app.core.plugin_loading import PluginError
from app.core.plugins import registry
from app.plugins.page.page_files import read_files
from tests.plugins.page.pages import NAMES, app_of_page
from tests.support.servers.settings import settings_of_main_port

PAGES = [plugin.page for plugin in registry().loaded.values() if plugin.page is not None]
FILES = [file for page in PAGES for file in page.folder.iterdir()]
CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(app_of_page(*NAMES)) as client:
        yield client


@pytest.mark.parametrize(
    "accept",
    [CHROME, "text/html", "TEXT/HTML", "text/html;q=0.9, application/json;q=0.5", "application/json;q=0.1, text/html"],
)
def test_browsers_get_the_page(client: TestClient[Litestar], accept: str) -> None:
    response = client.get("/", headers={"accept": accept})
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.text.startswith("<!doctype html>")
    assert set(re.split(r", ?", response.headers["vary"])) == {"Accept", "Accept-Encoding"}


@pytest.mark.parametrize(
    "accept",
    ["*/*", "", "application/json", "application/json, text/html", "text/html;q=0", "text/html;q=0.3, application/json",
     "text/html;q=many", "text/plain", "text/*", ";;,,;q=", "text/html" * 1000],
)  # fmt: skip
def test_other_clients_get_the_server_state_as_json(client: TestClient[Litestar], accept: str) -> None:
    response = client.get("/", headers={"accept": accept})
    assert (response.json()["status"], response.json()["models"]) == ("alive", sorted(NAMES))
    assert response.headers["vary"] == "Accept"
    assert client.get("/healthz").json() == {"status": "alive"}


@pytest.mark.parametrize("path", ["/", "/page/frame.js", "/page/page.css"])
def test_page_has_a_strict_content_security_policy(client: TestClient[Litestar], path: str) -> None:
    headers = client.get(path, headers={"accept": CHROME}).headers
    policy = dict(directive.strip().split(" ", 1) for directive in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_page_files_have_their_content_types_and_are_small(client: TestClient[Litestar]) -> None:
    types = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
    downloaded = client.get("/", headers={"accept": CHROME}).num_bytes_downloaded
    for file in (file for file in FILES if file.name != "index.html"):
        response = client.get(f"/page/{file.name}")
        assert response.headers["content-type"] == types[file.suffix]
        assert response.content == file.read_bytes()
        downloaded += response.num_bytes_downloaded
    assert 20_000 < downloaded < 100_000


def test_page_files_are_compressed_and_304_if_unchanged(client: TestClient[Litestar]) -> None:
    plain = client.get("/page/frame.js", headers={"accept-encoding": "identity"})
    compressed = client.get("/page/frame.js", headers={"accept-encoding": "gzip, br"})
    assert (plain.headers.get("content-encoding"), plain.headers["cache-control"]) == (None, "no-cache")
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.num_bytes_downloaded < len(plain.content) / 2
    assert compressed.content == plain.content
    for encoding in ("identity", "gzip"):
        headers = {"accept-encoding": encoding, "if-none-match": plain.headers["etag"]}
        again = client.get("/page/frame.js", headers=headers)
        assert (again.status_code, again.content) == (304, b"")
    assert client.get("/page/frame.js", headers={"if-none-match": '"something else"'}).content == plain.content


@pytest.mark.parametrize(
    "path", ["/page/index.html", "/page/none.js", "/page/..%2f..%2fpage.py", "/page/%2e%2e", "/page/", "/page/a/b"]
)
def test_other_page_paths_are_404(client: TestClient[Litestar], path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "Nothing is served" in response.json()["error"]


def test_links_of_the_page_resolve(client: TestClient[Litestar]) -> None:
    links = re.findall(r'(?:href|src)="([^"]*)"', client.get("/", headers={"accept": CHROME}).text)
    assert len(links) > 6
    for link in links:
        # Relative addresses work under any path of a proxy.
        assert link.startswith("page/") or link == "metrics"
        assert client.get(f"/{link}").status_code == 200


def data_of(html: str, name: str) -> Any:
    """Return what the server writes into the page for its modules."""
    (text,) = re.findall(rf' data-{name}="([^"]*)"', html)
    return json.loads(unescape(text))


def test_page_has_its_views_and_those_of_plugins_in_their_order() -> None:
    views = {"explain": lambda: {"detector": "pixels"}, "inferences": None}
    with TestClient(app_of_page(views=views)) as client:
        html = client.get("/", headers={"accept": CHROME}).text
        titles = [view["title"] for view in data_of(html, "views") if not view["within"]]
        assert [view["id"] for view in data_of(html, "views") if view["observes"]] == ["inferences"]
        assert titles == ["Try", "Use in code", "Models", "Recorded"]
        assert set(data_of(html, "requests")) == {"chariot", "v2", "v1", "tfs", "grps", "openai", "grpc"}
        assert client.get("/page/explain.json").json() == {"detector": "pixels"}
        assert client.get("/page/inferences.json").status_code == client.get("/page/drift.json").status_code == 404


def test_file_that_two_plugins_have_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "frame.js").write_text("")
    with pytest.raises(PluginError, match="exists in another plugin"):
        read_files([*PAGES, Page(folder=tmp_path)])


def test_modules_of_views_export_and_import_only_files_of_the_page() -> None:
    texts = {file.name: file.read_text() for file in FILES if file.suffix == ".js"}
    modules = [f"{view.id}.js" for page in PAGES for view in page.views]
    modules += [file for page in PAGES for file in page.requests.values()]
    assert len(modules) == 8 + 7
    assert all("export " in texts[module] for module in modules)
    for file, text in texts.items():
        imported = re.findall(r'(?:from |import\()"\./([^"]+)"', text)
        assert texts.keys() >= {*imported}, file


def test_guide_is_served_from_its_folder_alone(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "assets").mkdir(parents=True)
    (site / "index.html").write_text("<h1>Guide</h1>")
    (site / "assets" / "main.css").write_text("h1 {}")
    (tmp_path / "secret.txt").write_text("secret")
    (site / "link.txt").symlink_to(tmp_path / "secret.txt")
    with TestClient(app_of_page(guide=site)) as client:
        index = client.get("/guide/index.html")
        assert (index.text, index.headers["content-type"]) == ("<h1>Guide</h1>", "text/html; charset=utf-8")
        assert "default-src 'self'" in index.headers["content-security-policy"]
        assert client.get("/guide/assets/main.css").headers["content-type"].startswith("text/css")
        for path in ("none.html", "assets", "../secret.txt", "%2e%2e/secret.txt", "link.txt"):
            assert client.get(f"/guide/{path}").status_code == 404, path


def test_server_without_a_guide_says_how_to_read_it(client: TestClient[Litestar]) -> None:
    answer = client.get("/guide/index.html")
    assert answer.status_code == 404
    assert "folder docs/" in answer.text
    assert "`make docs`" in answer.text


@pytest.mark.parametrize(
    ("options", "complete"),
    [({}, True), ({"page": False}, False), ({"host": "0.0.0.0"}, False), ({"host": "0.0.0.0", "page": True}, True)],
)
def test_page_is_served_on_loopback_or_if_enabled(options: dict[str, Any], complete: bool) -> None:
    client = TestClient(Service(settings_of_main_port(**options), list).app)
    html = client.get("/", headers={"accept": CHROME}).text
    # Without the page, the table of GRPS is shown.
    assert ("page/frame.js" in html, "Mean latency" in html) == (complete, not complete)
    data = client.get("/page/models.json")
    assert data.status_code == (200 if complete else 404)
    # No other port is open, so the page reaches none.
    assert data.json().get("ports") == ({} if complete else None)
    assert client.get("/page/frame.js").status_code == (200 if complete else 404)
