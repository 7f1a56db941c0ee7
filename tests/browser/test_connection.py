"""Every view reports a lost connection in the same banner, and recovers alone."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import violations
from tests.browser.looking import open_page
from tests.browser.try_view import IMAGES, expect_findings
from tests.support.servers.ports import reserve_ports
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

pytestmark = pytest.mark.slow


def arguments_with_port() -> tuple[str, ...]:
    """Return the arguments of a server that can be started again at the same address."""
    (port,) = reserve_ports(1)
    return ("--model", str(ROOT / "fixtures" / "models" / "detector"), "--port", str(port))


def lose_server(page: Page, server: ServerProcess) -> None:
    """Stop the server, and open a view that needs it."""
    assert server.stop() == 0
    page.get_by_role("navigation").get_by_role("link", name="Models").click()
    expect(page.get_by_role("alert")).to_have_text(re.compile("The server cannot be reached.*Retry"))


def test_view_recovers_alone_from_a_lost_connection(browser: Browser) -> None:
    arguments = arguments_with_port()
    with run_server(*arguments) as first, open_page(browser, f"{first.address}/#models", expect_errors=True) as page:
        expect(page.get_by_role("button", name="detector", exact=True)).to_be_visible()
        page.get_by_role("navigation").get_by_role("link", name="Try").click()
        expect(page.locator("ol.records li")).to_have_count(5)
        lose_server(page, first)
        assert violations(page) == []
        page.get_by_role("button", name="Retry").click()
        expect(page.get_by_role("alert")).to_be_visible()
        with run_server(*arguments) as second:
            assert second.address == first.address
            expect(page.get_by_role("alert")).to_be_hidden()
            expect(page.get_by_role("button", name="detector", exact=True)).to_be_visible()


def test_images_of_the_user_are_sent_again(browser: Browser) -> None:
    arguments = arguments_with_port()
    with run_server(*arguments) as first, open_page(browser, f"{first.address}/#try", expect_errors=True) as page:
        expect_findings(page, 5)
        assert first.stop() == 0
        page.get_by_label("Choose files").set_input_files([IMAGES / "scene.jpg", IMAGES / "shape.jpg"])
        expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
        with run_server(*arguments):
            expect(page.get_by_role("alert")).to_be_hidden()
            expect(page.get_by_text("2 answered in")).to_be_visible()
