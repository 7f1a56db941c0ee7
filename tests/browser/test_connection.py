"""Every view reports a lost connection in the same banner, and recovers alone."""

import re

from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.looking import open_page
from tests.browser.try_view import IMAGES, MODELS, expect_findings
from tests.support.servers.ports import reserve_ports
from tests.support.servers.server_process import run_server


def test_views_recover_alone_from_a_lost_connection(browser: Browser) -> None:
    (port,) = reserve_ports(1)
    arguments = ("--model", str(MODELS / "detector"), "--port", str(port))
    with (
        run_server(*arguments) as first,
        open_page(browser, f"{first.address}/#models", expect_errors=True) as opened,
        open_page(browser, f"{first.address}/#try", expect_errors=True) as sending,
    ):
        detector = opened.get_by_role("button", name="detector", exact=True)
        expect(detector).to_be_visible()
        opened.get_by_role("navigation").get_by_role("link", name="Try").click()
        expect_findings(opened, 5)
        expect_findings(sending, 5)
        assert first.stop() == 0
        opened.get_by_role("navigation").get_by_role("link", name="Models").click()
        sending.get_by_label("Choose files").set_input_files([IMAGES / "scene.jpg", IMAGES / "shape.jpg"])
        for page in (opened, sending):
            expect(page.get_by_role("alert")).to_have_text(re.compile("The server cannot be reached"))
        assert violations(opened) == []
        opened.get_by_role("button", name="Retry").click()
        expect(opened.get_by_role("alert")).to_be_visible()
        with run_server(*arguments):
            for page in (opened, sending):
                expect(page.get_by_role("alert")).to_be_hidden()
            expect(detector).to_be_visible()
            expect(sending.get_by_text("2 answered in")).to_be_visible()
