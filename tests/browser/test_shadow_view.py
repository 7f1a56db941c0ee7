"""Disagreements in the page's view Recorded: images that a shadow version answers in another way."""

import httpx
import numpy as np
from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, assert_fits, open_page
from tests.browser.servers import RecordingServer, write_versions
from tests.browser.try_view import infer
from tests.support.data.images import encode_image


def test_different_answers_of_a_loaded_shadow_version_are_listed(
    browser: Browser, recording_server: RecordingServer
) -> None:
    address, name = recording_server.address, recording_server.versions.name
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, :, 0] = 255
    with open_page(browser, f"{address}/#shadow") as page:
        expect(page.get_by_role("heading", name="Inferences")).to_be_visible()
        expect(page.get_by_role("heading", name="Disagreements")).to_be_hidden()
        write_versions(recording_server.versions, shadow={"version": "2", "share": 1})
        httpx.post(f"{address}/v2/repository/models/{name}/load", timeout=60).raise_for_status()
        page.get_by_role("heading", name="Disagreements").click()
        expect(page.get_by_text("The latest 0 images with different answers")).to_be_visible()
        infer(address, name, encode_image(pixels))
        expect(page.get_by_text("The latest 1 image with different answers")).to_be_visible()
        cells = page.get_by_role("table", name="Different answers").locator("tbody td").all_inner_texts()
        assert cells[1:4] == [name, "1: cat 0.90", "2: dog 0.80"]
        for size in (DESKTOP, PHONE):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert_fits(page, size)
        assert violations(page) == []
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("dialog").get_by_role("button", name="cat 90.0 %")).to_be_visible()
