"""Views, and parts of views, of a plugin that is not in the tree."""

from playwright.sync_api import Browser, expect

from tests.browser.looking import open_page
from tests.browser.servers import StoppableServer


def test_plugin_adds_a_view_and_a_part_of_another_view(browser: Browser, changing_server: StoppableServer) -> None:
    with open_page(browser, f"{changing_server.address}/#try?model=detector") as page:
        expect(page.get_by_text("detector answers with greetings")).to_be_visible()
        page.get_by_role("link", name="Acme").click()
        expect(page.get_by_role("status").filter(has_text="Ahoy")).to_be_visible()
