"""Accessibility of every view, with axe-core in both schemes and at both widths."""

import pytest
from playwright.sync_api import Browser, FloatRect, Locator, expect

from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, Scheme, Size, assert_fits, open_page
from tests.browser.servers import RecordingServer

# Address of each view, and a text that it shows once it is loaded.
VIEWS = {
    "try": ("#try?model=detector&second=segmenter", "Drop or paste images here"),
    "ask": ("#try?model=vlm&sample=shape.jpg", "Drop or paste images here"),
    "request": ("#request?model=detector&sample=scene.jpg", "Response"),
    "recorded": ("#recorded", "Filters"),
    "models": ("#models?model=detector", "Detected properties"),
}
LOOKS: tuple[tuple[Size, Scheme], ...] = ((DESKTOP, "light"), (PHONE, "dark"))


@pytest.mark.parametrize("view", VIEWS)
def test_view_is_accessible(browser: Browser, server: str, recording_server: RecordingServer, view: str) -> None:
    address, text = VIEWS[view]
    with open_page(browser, f"{server if view == 'ask' else recording_server.address}/{address}") as page:
        for size, scheme in LOOKS:
            page.set_viewport_size({"width": size[0], "height": size[1]})
            page.emulate_media(color_scheme=scheme)
            expect(page.get_by_role("main").get_by_text(text).locator("visible=true").first).to_be_visible()
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            assert violations(page) == []
            assert_fits(page, size)
            current = page.get_by_role("navigation").locator("[aria-current=page]")
            expect(current).to_have_attribute("href", address.partition("?")[0])
            controls = page.locator("button, a:not(.skip)").locator("visible=true").all()
            assert [control for control in controls if height(control) < 24] == []


def height(element: Locator) -> float:
    box = element.bounding_box()
    # WCAG 2.2, 2.5.8: 24 pixels, or that much space around it, as names in table rows have.
    return 0 if box is None else max(box["height"], row["height"] if (row := row_of(element)) else 0)


def row_of(element: Locator) -> FloatRect | None:
    row = element.locator("xpath=ancestor::tr")
    return row.bounding_box() if row.count() else None
