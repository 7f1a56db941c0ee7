"""Every view reports a lost connection in the same banner, and recovers alone."""

import re

from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.looking import open_page
from tests.browser.servers import StoppableServer
from tests.browser.try_view import IMAGES, expect_findings


def test_views_recover_alone_from_a_lost_connection(browser: Browser, changing_server: StoppableServer) -> None:
    address = changing_server.address
    with (
        open_page(browser, f"{address}/#models", expect_errors=True) as opened,
        open_page(browser, f"{address}/#try?model=detector&sample=scene.jpg", expect_errors=True) as sending,
    ):
        detector = opened.get_by_role("button", name="detector", exact=True)
        expect(detector).to_be_visible()
        opened.goto(f"{address}/#try?model=detector&sample=scene.jpg")
        expect_findings(opened, 5)
        expect_findings(sending, 5)
        try:
            assert changing_server.stop() == 0
            opened.get_by_role("navigation").get_by_role("link", name="Models").click()
            sending.get_by_label("Choose files").set_input_files([IMAGES / "scene.jpg", IMAGES / "shape.jpg"])
            for page in (opened, sending):
                expect(page.get_by_role("alert")).to_have_text(re.compile("The server cannot be reached"))
            assert violations(opened) == []
            opened.get_by_role("button", name="Retry").click()
            expect(opened.get_by_role("alert")).to_be_visible()
        finally:
            changing_server.start()
        for page in (opened, sending):
            expect(page.get_by_role("alert")).to_be_hidden()
        expect(detector).to_be_visible()
        expect(sending.get_by_text("2 answered in")).to_be_visible()
