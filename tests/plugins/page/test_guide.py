"""The guide of the page: the built documentation, if it is there."""

from pathlib import Path

import pytest
from litestar.testing import TestClient

from app.core.engine.engine import Engine
from app.plugins.page.page import WebPage
from app.plugins.page.trends import Trends
from tests.plugins.page.pages import app_of

BROWSER = {"accept": "text/html"}


def test_guide_is_served_from_its_folder_alone(engine: Engine, trends: Trends, tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "assets").mkdir(parents=True)
    (site / "index.html").write_text("<h1>Guide</h1>")
    (site / "assets" / "main.css").write_text("h1 {}")
    (tmp_path / "secret.txt").write_text("secret")
    (site / "link.txt").symlink_to(tmp_path / "secret.txt")
    with TestClient(app_of(engine, WebPage(engine, trends, guide=site))) as client:
        index = client.get("/guide/index.html")
        assert (index.text, index.headers["content-type"]) == ("<h1>Guide</h1>", "text/html; charset=utf-8")
        assert "default-src 'self'" in index.headers["content-security-policy"]
        assert client.get("/guide/assets/main.css").headers["content-type"].startswith("text/css")
        for path in ("none.html", "assets", "../secret.txt", "%2e%2e/secret.txt", "link.txt"):
            assert client.get(f"/guide/{path}").status_code == 404, path
        assert 'data-guide="true"' in client.get("/", headers=BROWSER).text


@pytest.mark.parametrize("full", [True, False])
def test_page_without_a_guide_has_no_link_to_it(engine: Engine, trends: Trends, full: bool) -> None:
    with TestClient(app_of(engine, WebPage(engine, trends, full=full))) as client:
        assert 'data-guide="false"' in client.get("/grps/v1/monitor/metrics", headers=BROWSER).text
        assert client.get("/guide/index.html").status_code == 404
