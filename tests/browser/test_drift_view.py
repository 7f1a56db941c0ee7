"""Drift in the page's view Recorded: windows and their verdicts for a model whose images turn dark."""

import httpx
from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, assert_fits, open_page
from tests.browser.servers import DRIFT_WINDOW, StoppableServer, crops
from tests.browser.try_view import infer


def test_windows_are_shown_with_their_verdicts(browser: Browser, changing_server: StoppableServer) -> None:
    with open_page(browser, f"{changing_server.address}/#drift") as page:
        page.get_by_role("heading", name="Drift").click()
        expect(page.get_by_text("No window is complete yet")).to_be_visible()
        for seed, light, text in ((2, 1.0, "No drift in 1 model"), (3, 0.4, "Drifted: monitored")):
            for image in crops(seed, DRIFT_WINDOW, light):
                infer(changing_server.address, "monitored", image)
            expect(page.get_by_text(text)).to_be_visible()
        rows = page.get_by_role("table", name="Windows of monitored").locator("tbody tr")
        windows = httpx.get(f"{changing_server.address}/page/drift.json", timeout=60).json()["monitored"]
        expect(rows).to_have_count(2)
        for row, window in zip(rows.all(), windows[::-1], strict=True):
            cells = row.locator("td").all_inner_texts()
            verdict = "drifted" if window["drifted"] else "no drift"
            similarities = [f"{window[name]:.3f}" for name in ("similarity", "baseline_similarity")]
            assert cells[:4] == [verdict, str(DRIFT_WINDOW), *similarities]
            assert len(cells) == 4 + len(window["tests"])
        expect(page.get_by_role("region", name="Recorded inferences")).to_have_count(0)
        for size in (DESKTOP, PHONE):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert_fits(page, size)
        assert violations(page) == []
