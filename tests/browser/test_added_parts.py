"""Views, and parts of views, of a plugin that is not in the tree."""

from playwright.sync_api import Browser, expect

from tests.browser.looking import open_page
from tests.browser.try_view import MODELS
from tests.plugins.acme.process import ENVIRONMENT
from tests.support.servers.server_process import run_server


def test_plugin_adds_a_view_and_a_part_of_another_view(browser: Browser) -> None:
    options = ("--model", str(MODELS / "detector"), "--plugins", "acme", "--acme-greeting", "Ahoy")
    with (
        run_server(*options, environment=ENVIRONMENT) as server,
        open_page(browser, server.address) as page,
    ):
        expect(page.get_by_text("detector answers with greetings")).to_be_visible()
        page.get_by_role("link", name="Acme").click()
        expect(page.get_by_role("status").filter(has_text="Ahoy")).to_be_visible()
