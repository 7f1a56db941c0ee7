"""The guide of the page: the built documentation, if it is there."""

from pathlib import Path

from litestar.testing import TestClient

from app.core.engine.engine import Engine
from app.plugins.page.page import WebPage
from app.plugins.page.trends import Trends
from tests.plugins.page.pages import app_of


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


def test_server_without_a_guide_says_how_to_read_it(engine: Engine, trends: Trends) -> None:
    with TestClient(app_of(engine, WebPage(engine, trends))) as client:
        answer = client.get("/guide/index.html")
    assert answer.status_code == 404
    assert "folder docs/" in answer.text
    assert "`make docs`" in answer.text
