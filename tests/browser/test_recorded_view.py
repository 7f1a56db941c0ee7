"""The page's recorded view: search, details, and its absence without recording."""

import json
import re

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.looking import box_of, open_page
from tests.browser.servers import HTML_NAME, RecordingServer
from tests.browser.try_view import ARE_OPAQUE, expect_findings, rows


@pytest.fixture
def server(recording_server: RecordingServer) -> str:
    return recording_server.address


def column(page: Page, name: str) -> list[str]:
    return page.locator(f"table.recorded tbody .col-{name}").all_inner_texts()


def search(page: Page, expected: int) -> None:
    page.get_by_role("button", name="Search").click()
    text = f"{expected} found, newest first" if expected else "No recorded inference matches these filters."
    expect(page.get_by_text(text)).to_be_visible()


def test_recorded_inferences_are_listed_newest_first_and_older_ones_on_request(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#recorded", expect_errors=True) as page:
        expect(page.get_by_text("6 found, newest first")).to_be_visible()
        assert column(page, "model") == ["detector", "classifier", "classifier", "detector", "detector", "detector"]
        assert "Expected at least one input" in column(page, "label")[0]
        assert column(page, "label")[1] == "blue star"
        assert column(page, "label")[5] == "yellow circle, purple star, green circle, blue square, yellow square"
        assert column(page, "metadata")[5] == (
            f"camera = north, altitude = 100, latitude = 53.55, longitude = 10, note = {HTML_NAME}"
        )
        # A thumbnail for each image that was kept, and none of metadata.
        assert page.locator("main img[src^='http']").count() == page.locator("main img").count() == 5
        # Use a smaller page size.
        page.route("**/inferences?*", lambda route: route.continue_(url=route.request.url.replace("=50", "=4")))
        page.reload()
        expect(page.get_by_text("4 or more found")).to_be_visible()
        page.get_by_role("button", name="Show older").click()
        expect(page.get_by_text("6 found, newest first")).to_be_visible()
        expect(page.locator("table.recorded tbody button").nth(4)).to_be_focused()


def test_long_metadata_leaves_room_for_the_names_of_models(browser: Browser, server: str) -> None:
    def lengthen(route: Route) -> None:
        answer = route.fetch().json()
        entries = [{"key": f"key{index}", "type": "int", "value": index} for index in range(300)]
        answer["inferences"][1]["metadata"] = entries
        route.fulfill(json=answer)

    with open_page(browser, f"{server}/#models") as page:
        page.route("**/inferences?*", lengthen)
        page.goto(f"{server}/#recorded")
        row = page.locator("table.recorded tbody tr").nth(1)
        expect(row).to_contain_text("key299 = 299")
        assert box_of(row)["height"] < 300
        assert box_of(row.locator(".col-model"))["width"] >= 90


def test_search_by_model_outcome_label_and_metadata(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#recorded", expect_errors=True) as page:
        page.get_by_text("Filters", exact=True).click()
        page.get_by_label("Model").fill("detector")
        search(page, 4)
        page.get_by_label("Outcome").select_option("failed")
        search(page, 1)
        page.get_by_role("button", name="Clear").click()
        expect(page.get_by_text("6 found, newest first")).to_be_visible()
        page.get_by_label("Metadata").fill('camera = "north" and altitude > 105')
        search(page, 2)
        page.get_by_label("Label").fill("blue star")
        search(page, 0)
        page.get_by_role("button", name="Clear").click()
        expect(page.get_by_text("6 found, newest first")).to_be_visible()
        page.get_by_label("Model").fill("classifier")
        search(page, 2)
        assert set(column(page, "model")) == {"classifier"}
        page.reload()
        expect(page.get_by_text("2 found, newest first")).to_be_visible()
        # The filters are folded to one line, which says what is searched.
        page.get_by_text("Model: classifier").click()
        expect(page.get_by_label("Model")).to_have_value("classifier")
        page.get_by_role("button", name="Clear").click()
        page.get_by_label("Metadata").fill("altitude >> 5")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("alert")).to_contain_text("where: Expected")
        expect(page.get_by_role("region", name="Recorded inferences")).to_be_hidden()


def test_inference_is_opened_with_its_image_by_keyboard(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#recorded?model=detector") as page:
        openers = page.locator("table.recorded tbody button")
        expect(openers).to_have_count(4)
        openers.nth(1).focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("listitem")).to_have_count(5)
        expect(dialog).to_contain_text("120 (int)")
        expect(dialog).to_contain_text(HTML_NAME)
        page.wait_for_function(ARE_OPAQUE, arg="dialog canvas.image")
        expect(page).to_have_url(re.compile("&id="))
        dialog.get_by_role("button", name="Older").click()
        expect(dialog).to_contain_text("110 (int)")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(openers.nth(2)).to_be_focused()
        expect(page).not_to_have_url(re.compile("[&?]id="))
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("&id="))
        page.reload()
        expect(dialog).to_contain_text("110 (int)")


CONTENTS: dict[str, list[object]] = {
    "a star · left": [{"prompt": "What?", "answer": "a star"}, {"prompt": "Where?", "answer": "left"}],
    "word " * 32 + "…": [{"generated_text": "word " * 100}],
    '{"name":"y","datatype":"FP32","shape":[1],"data":[1]}': [
        {"name": "y", "datatype": "FP32", "shape": [1], "data": [1]}
    ],
    "no results": [],
}


def test_records_without_labels_are_listed_by_their_content(browser: Browser, server: str) -> None:
    query = {"limit": 1, "model": "classifier"}
    (inference,) = httpx.get(f"{server}/inferences", params=query, timeout=60).json()["inferences"]
    inferences = [
        inference | {"records": records, "task_type": "TEXT_GENERATION", "id": str(index), "image": None}
        for index, records in enumerate(CONTENTS.values())
    ]
    with open_page(browser, f"{server}/#recorded") as page:
        answer = {"inferences": inferences, "next": None}
        page.route("**/inferences?*", lambda route: route.fulfill(json=answer))
        page.reload()
        expect(page.locator("table.recorded tbody .col-label")).to_have_text(list(CONTENTS))


# The last test here: it is recorded.
def test_page_sends_trials_of_what_it_shows_and_none_of_its_own(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect(page.get_by_text("Drop or paste images here")).to_be_visible()
        page.wait_for_load_state("networkidle")
        expect(rows(page)).to_have_count(0)
        expect(page.get_by_text("Requests are recorded. Click a sample to send one.")).to_be_visible()
        assert box_of(page.get_by_role("button", name="Sample scene.jpg"))["width"] > 300
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.post_data or "") if request.method == "POST" else None)
        page.get_by_role("button", name="Sample scene.jpg").click()
        expect_findings(page, 5)
        page.get_by_role("slider", name="Confidence threshold").fill("0.96")
        expect(page.get_by_text("3 results")).to_be_visible()
        first, second = (json.loads(body).get("parameters", {}) for body in sent)
        assert (first, second) == ({}, {"score_threshold": 0.96})
        page.get_by_role("navigation").get_by_role("link", name="Recorded").click()
        expect(page.get_by_text("8 found, newest first")).to_be_visible()
        assert column(page, "model")[:3] == ["detector trial", "detector trial", "detector"]
        page.get_by_text("Filters", exact=True).click()
        page.get_by_label("Trials").select_option("without")
        search(page, 6)
