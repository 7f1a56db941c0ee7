"""The view Try shows the tiles of an image."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.looking import open_page
from tests.plugins.acme.test_acme import DETECTOR
from tests.support.servers.server_process import run_server

pytestmark = pytest.mark.slow


def test_try_shows_the_tiles_and_sends_their_size(browser: Browser) -> None:
    with run_server("--model", str(DETECTOR)) as server, open_page(browser, server.address) as page:
        expect(page.get_by_role("img", name="Tiles")).to_have_count(0)
        # The page also sends the sample that it opens with.
        with page.expect_request(lambda request: '"tile":192' in (request.post_data or "")):
            page.get_by_label("Tile (pixels)").fill("192")
            page.get_by_label("Tile (pixels)").press("Tab")
        expect(page.get_by_text("is cut into 12 tiles")).to_be_visible()
        expect(page.get_by_role("img", name="Tiles").locator("rect")).to_have_count(12)
