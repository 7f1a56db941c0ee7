"""The page's batch view: every image of a folder is sent once, and the table shows the answers."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from tests.browser.looking import open_page
from tests.browser.zero_shot import open_zero_shot, sent_labels
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"
FORMULA = "=cmd.jpg"

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create two levels with four images, one damaged image and one file that is not an image."""
    root = tmp_path / "north"
    (root / "deeper").mkdir(parents=True)
    for name in ("scene.jpg", "photo.jpg"):
        shutil.copy(IMAGES / name, root / name)
    shutil.copy(IMAGES / "shape.jpg", root / "deeper" / FORMULA)
    shutil.copy(IMAGES / "scene.jpg", root / "deeper" / "again.jpg")
    (root / "torn.jpg").write_bytes(b"\xff\xd8\xff torn")
    (root / "notes.txt").write_text("not an image")
    return root


def names(page: Page) -> Locator:
    return page.locator("tbody .col-name")


def send_folder(page: Page, folder: Path) -> None:
    page.locator("input[webkitdirectory]").set_input_files(folder)
    expect(page.get_by_text("4 answered, 1 failed")).to_be_visible()


def test_every_image_of_a_folder_is_sent_and_listed(browser: Browser, server: str, folder: Path) -> None:
    with open_page(browser, f"{server}/#batch?model=detector", expect_errors=True) as page:
        requests: list[Request] = []
        page.on("request", lambda request: requests.append(request) if request.method == "POST" else None)
        send_folder(page, folder)
        assert len(requests) == 5
        expect(page.get_by_text("Skipped 1 file that is not an image")).to_be_visible()
        files = (f"deeper/{FORMULA}", "deeper/again.jpg", "photo.jpg", "scene.jpg", "torn.jpg")
        expect(names(page)).to_have_text([f"north/{file}" for file in files])
        scene = page.get_by_role("row", name="north/scene.jpg")
        expect(scene.locator(".col-label")).to_have_text(
            "yellow circle, purple star, green circle, blue square, yellow square"
        )
        expect(scene.locator(".col-found")).to_have_text("5")
        expect(page.get_by_role("row", name="photo.jpg").locator(".col-label")).to_have_text("no results")
        expect(page.get_by_role("row", name="torn.jpg").locator(".col-label")).to_contain_text("truncated or damaged")
        # The centre of a thumbnail has the colours of its image.
        page.wait_for_function(
            """() => {
              // Chromium warns about repeated reads of a canvas, so this reads a copy.
              const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
              copy.drawImage(document.querySelectorAll(".thumbnail")[3], -32, -32);
              return copy.getImageData(0, 0, 1, 1).data[3] === 255;
            }"""
        )


def test_table_is_sorted_searched_and_filtered(browser: Browser, server: str, folder: Path) -> None:
    with open_page(browser, f"{server}/#batch?model=detector", expect_errors=True) as page:
        send_folder(page, folder)
        page.get_by_role("button", name="Results").click()
        found = page.get_by_role("columnheader", name="Results")
        expect(found).to_have_attribute("aria-sort", "descending")
        expect(names(page).last).to_have_text("north/torn.jpg")
        expect(page.locator("tbody .col-found")).to_have_text(["5", "5", "1", "0", ""])
        page.get_by_role("button", name="Results").click()
        expect(found).to_have_attribute("aria-sort", "ascending")
        expect(page.locator("tbody .col-found")).to_have_text(["0", "1", "5", "5", ""])
        page.get_by_label("Search").fill("YELLOW")
        expect(page.get_by_text("2 of 5 images")).to_be_visible()
        page.get_by_label("Search").fill("")
        page.get_by_label("Show").select_option("Failed")
        expect(names(page)).to_have_text(["north/torn.jpg"])
        page.get_by_label("Show").select_option("Without results")
        expect(names(page)).to_have_text(["north/photo.jpg"])
        page.get_by_label("Show").select_option("All")
        page.get_by_label("Confidence threshold").press("End")
        expect(page.get_by_role("row", name="north/scene.jpg").locator(".col-found")).to_have_text("0")


def test_answers_are_saved_as_json_and_csv(browser: Browser, server: str, folder: Path) -> None:
    with open_page(browser, f"{server}/#batch?model=detector", expect_errors=True) as page:
        send_folder(page, folder)
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save as JSON").click()
        saved = json.loads(waiting.value.path().read_text())
        assert (saved["model"], saved["score_threshold"]) == ("detector", 0.5)
        answers = {answer["file"]: answer for answer in saved["answers"]}
        assert len(answers["north/scene.jpg"]["records"]) == 5
        assert set(answers["north/torn.jpg"]) == {"file", "error"}
        shutil.copy(IMAGES / "shape.jpg", folder / FORMULA)
        page.locator("input[accept]").last.set_input_files(folder / FORMULA)
        expect(page.get_by_text("1 answered in")).to_be_visible()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save as CSV").click()
        rows = list(csv.reader(io.StringIO(waiting.value.path().read_text())))
        assert rows[0] == ["file", "labels", "best_score", "found", "milliseconds", "error"]
        # A spreadsheet must not run a file name as a formula.
        assert rows[1][0] == f"'{FORMULA}"
        assert rows[1][1] == "blue star"


def test_image_is_opened_and_closed_by_keyboard(browser: Browser, server: str, folder: Path) -> None:
    with open_page(browser, f"{server}/#batch?model=detector", expect_errors=True) as page:
        send_folder(page, folder)
        name = page.get_by_role("button", name="north/scene.jpg")
        name.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="north/scene.jpg")
        expect(dialog).to_contain_text("yellow circle, purple star")
        expect(dialog.get_by_role("button", name="Close")).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(name).to_be_focused()


def test_request_is_retried_when_the_server_is_busy(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#batch?model=classifier", expect_errors=True) as page:
        refused: list[str] = []

        def refuse_once(route: Route) -> None:
            # Refuse the first request as an overloaded server does.
            if not refused:
                refused.append("once")
                route.fulfill(status=429, json={"error": "Too many requests are waiting"})
            else:
                route.continue_()

        page.route("**/infer", refuse_once)
        page.locator("input[accept]").last.set_input_files([IMAGES / "shape.jpg", IMAGES / "scene.jpg"])
        expect(page.get_by_text("2 answered in")).to_be_visible()
        assert refused == ["once"]


def test_long_batch_is_shown_in_parts_and_can_be_stopped(browser: Browser, server: str, tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / f"{number:03}.jpg").hardlink_to(IMAGES / "shape.jpg")
    with open_page(browser, f"{server}/#batch?model=classifier") as page:
        page.locator("input[accept]").last.set_input_files(sorted(tmp_path.glob("*.jpg")))
        expect(page.get_by_text("150 answered in")).to_be_visible()
        expect(names(page)).to_have_count(100)
        page.get_by_role("button", name="Show more").click()
        expect(names(page)).to_have_count(150)
        page.route("**/infer", lambda route: None)
        page.get_by_label("Model").select_option("detector")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Stopped after 0 of 150 images")).to_be_visible()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save as JSON").click()
        # No records would say that the model found nothing.
        assert json.loads(waiting.value.path().read_text())["answers"][0] == {"file": "000.jpg"}


def test_candidate_labels_are_sent_with_every_image(browser: Browser, server: str, folder: Path) -> None:
    with open_zero_shot(browser, f"{server}/#batch?model=detector", "detector") as page:
        page.locator("input[webkitdirectory]").set_input_files(folder)
        expect(page.get_by_role("alert")).to_contain_text("Enter candidate labels: detector")
        sent: list[tuple[str, object]] = []
        page.on("request", lambda request: sent.append(sent_labels(request)) if request.method == "POST" else None)
        page.get_by_role("textbox", name="Candidate labels").fill("cup, spoon")
        page.keyboard.press("Enter")
        expect(page.get_by_text("5 failed")).to_be_visible()
        assert sent == [("m-detector", ["cup", "spoon"])] * 5
