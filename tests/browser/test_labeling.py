"""The part of the view Use in code that connects labelling tools with the model."""

import httpx
from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.looking import PHONE, assert_fits, open_page
from tests.browser.servers import StoppableServer


def test_shown_address_and_configuration_are_accepted(browser: Browser, changing_server: StoppableServer) -> None:
    server = changing_server.address
    with open_page(browser, f"{server}/#request?model=segmenter", size=PHONE) as page:
        panel = page.get_by_text("Labelling tools")
        panel.click()
        address, config = (
            page.get_by_role("group", name=name).inner_text()
            for name in ("Address for Label Studio", "Labelling configuration")
        )
        assert httpx.get(f"{address}/health", timeout=60).json()["status"] == "UP"
        answer = httpx.post(f"{address}/setup", json={"project": "1.1", "schema": config}, timeout=60)
        assert answer.status_code == 200, answer.text
        assert_fits(page, PHONE)
        assert violations(page) == []
        page.goto(f"{server}/#request?model=half_plus_two")
        expect(page.get_by_role("group", name="Python")).to_contain_text("half_plus_two")
        expect(panel).to_have_count(0)
