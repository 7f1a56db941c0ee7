"""Views, and parts of views, that plugins add: a foreign one's, labelling tools, tiles, drift, and disagreements."""

import httpx
import numpy as np
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, assert_fits, box_of, open_page
from tests.browser.servers import DRIFT_WINDOW, RecordingServer, StoppableServer, crops, write_versions
from tests.browser.try_view import IMAGES, expect_drawn, infer, pixel
from tests.support.data.images import encode_image


def assert_accessible(page: Page) -> None:
    """Assert that the page fits a desktop and a phone, and breaks no rule of accessibility."""
    for size in (DESKTOP, PHONE):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        assert_fits(page, size)
    assert violations(page) == []


def test_plugin_adds_a_view_and_a_part_of_another_view(browser: Browser, changing_server: StoppableServer) -> None:
    with open_page(browser, f"{changing_server.address}/#try?model=detector") as page:
        expect(page.get_by_text("detector answers with greetings")).to_be_visible()
        page.get_by_role("link", name="Acme").click()
        expect(page.get_by_role("status").filter(has_text="Ahoy")).to_be_visible()


def test_shown_address_and_configuration_of_labelling_tools_are_accepted(
    browser: Browser, changing_server: StoppableServer
) -> None:
    server = changing_server.address
    with open_page(browser, f"{server}/#request?model=segmenter") as page:
        panel = page.get_by_text("Labelling tools")
        panel.click()
        address, config = (
            page.get_by_role("group", name=name).inner_text()
            for name in ("Address for Label Studio", "Labelling configuration")
        )
        assert httpx.get(f"{address}/health", timeout=60).json()["status"] == "UP"
        answer = httpx.post(f"{address}/setup", json={"project": "1.1", "schema": config}, timeout=60)
        assert answer.status_code == 200, answer.text
        assert_accessible(page)
        page.goto(f"{server}/#request?model=half_plus_two")
        expect(page.get_by_role("group", name="Python")).to_contain_text("half_plus_two")
        expect(panel).to_have_count(0)


def test_try_shows_the_tiles_of_every_image_and_sends_their_size(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=photo.jpg") as page:
        expect(page.get_by_role("group", name="photo.jpg with results")).to_be_visible()
        page.get_by_label("Choose files").set_input_files([IMAGES / "photo.jpg", IMAGES / "scene.jpg"])
        expect(page.get_by_text("2 answered in")).to_be_visible()
        page.get_by_text("More", exact=True).click()
        with page.expect_request(lambda request: '"tile":192' in (request.post_data or "")):
            page.get_by_label("Tile (pixels)").fill("192")
            page.get_by_label("Tile (pixels)").press("Tab")
        expect(page.get_by_text("photo.jpg (")).to_contain_text("is cut into")
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_text("scene.jpg (640 x 480) is cut into 12 tiles")).to_be_visible()
        page.get_by_role("button", name="1:1, actual size").click()
        expect_drawn(page)
        stage = box_of(page.locator(".stage"))
        # The second column of tiles begins at 149.
        left, top = (stage["width"] - 2 - 640) / 2, (stage["height"] - 2 - 480) / 2
        colours = [sum(pixel(page, "image", left + 149 + shift, top + 60)[:3]) for shift in (-2, -1, 0, 1)]
        assert max(colours) - min(colours) > 250


def test_windows_of_drift_are_shown_with_their_verdicts(browser: Browser, changing_server: StoppableServer) -> None:
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
        assert_accessible(page)


# It is recorded, so that the tests of the recorded view come before it.
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
        assert_accessible(page)
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("dialog").get_by_role("button", name="cat 90.0 %")).to_be_visible()
