"""The page of a server with authentication: the browser asks its user once and sends the key with all requests."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from app.core.server.auth.api_keys import ApiKey
from app.plugins.access.keys.key_file import add_key
from tests.browser.programs import Programs
from tests.browser.test_request_view import choose, copy_text, run_shell
from tests.browser.try_view import IMAGES, MODELS
from tests.support.servers.server_process import ServerProcess, run_server

KEYS = {"key-of-the-owner": ("infer", "read", "admin"), "key-of-the-screen": ("infer", "read")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    path: Path = tmp_path_factory.mktemp("keys") / "keys.json"
    for key, permissions in KEYS.items():
        add_key(path, key, ApiKey(name=key[11:], sha256="0" * 64, permissions=permissions))
    with run_server("--model", str(MODELS / "detector"), "--api-keys", str(path)) as process:
        yield process


@contextmanager
def open_with_key(browser: Browser, url: str, key: str) -> Generator[tuple[Page, list[str]]]:
    """Open the page with `key` as password; yield it with the URLs that were rejected."""
    context = browser.new_context(http_credentials={"username": "anybody", "password": key})
    page = context.new_page()
    rejected: list[str] = []
    page.on("response", lambda response: rejected.append(response.url) if response.status in (401, 403) else None)
    try:
        page.goto(url)
        yield page, rejected
    finally:
        context.close()


def test_admin_key_allows_every_view_and_reloading_and_copied_commands_read_a_key_from_the_environment(
    browser: Browser, server: ServerProcess, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(IMAGES / "scene.jpg", tmp_path)
    monkeypatch.setenv("API_KEY", "key-of-the-screen")
    url = server.address
    with open_with_key(browser, f"{url}/#try?model=detector&sample=scene.jpg", "key-of-the-owner") as (page, rejected):
        expect(page.get_by_text("yellow circle").first).to_be_visible()
        page.goto(f"{url}/#request?model=detector&sample=scene.jpg")
        for protocol in ("chariot", "v2", "grps", "tfs", "grpc"):
            choose(page, protocol)
            command, program = copy_text(page, "curl") if protocol != "grpc" else "", copy_text(page, "Python")
            assert "key-of" not in command + program
            if command:
                assert "yellow circle" in run_shell(command, tmp_path)
            assert "yellow circle" in programs.run(program, tmp_path, API_KEY="key-of-the-screen")
        page.goto(f"{url}/#models")
        page.get_by_role("button", name="Reload detector").click()
        expect(page.get_by_text("1 model, 1 ready")).to_be_visible()
        assert set(rejected) <= {f"{url}/"}


def test_user_without_admin_permission_has_no_load_buttons(browser: Browser, server: ServerProcess) -> None:
    with open_with_key(browser, f"{server.address}/#models", "key-of-the-screen") as (page, rejected):
        expect(page.get_by_text("1 model, 1 ready")).to_be_visible()
        expect(page.get_by_role("link", name="Try detector")).to_be_visible()
        for action in ("Reload", "Unload"):
            expect(page.get_by_role("button", name=f"{action} detector")).to_have_count(0)
        assert set(rejected) <= {f"{server.address}/"}


def test_page_is_rejected_without_a_valid_key(browser: Browser, server: ServerProcess) -> None:
    with open_with_key(browser, server.address, "wrong") as (page, rejected):
        expect(page.get_by_text("The key is not known here")).to_be_visible()
        assert rejected
