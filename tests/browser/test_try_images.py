"""Several images in the page's view Try: every file is sent once, and the table shows the answers."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from tests.browser.looking import box_of, open_page
from tests.browser.try_view import ARE_OPAQUE, IMAGES, download, expect_findings

FORMULA = "=cmd.jpg"


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


def test_images_of_a_folder_are_sent_listed_sorted_filtered_and_saved(
    browser: Browser, server: str, folder: Path
) -> None:
    with open_page(browser, f"{server}/#try?model=detector", expect_errors=True) as page:
        expect_findings(page, 5)
        requests: list[Request] = []
        page.on("request", lambda request: requests.append(request) if request.url.endswith("/infer") else None)
        page.locator("input[webkitdirectory]").set_input_files(folder)
        expect(page.get_by_text("4 answered, 1 failed")).to_be_visible()
        assert len(requests) == 5
        expect(page.get_by_text("Skipped 1 other file.")).to_be_visible()
        files = (f"deeper/{FORMULA}", "deeper/again.jpg", "photo.jpg", "scene.jpg", "torn.jpg")
        expect(names(page)).to_have_text([f"north/{file}" for file in files])
        scene = page.get_by_role("row", name="north/scene.jpg")
        expect(scene.locator(".col-label")).to_have_text(
            "yellow circle, purple star, green circle, blue square, yellow square"
        )
        expect(scene.locator(".col-found")).to_have_text("5")
        expect(page.get_by_role("row", name="photo.jpg").locator(".col-label")).to_have_text("no results")
        expect(page.get_by_role("row", name="torn.jpg").locator(".col-label")).to_contain_text("truncated or damaged")
        page.wait_for_function(ARE_OPAQUE, arg="tr:nth-child(4) .thumbnail")
        name = page.get_by_role("button", name=f"north/deeper/{FORMULA}")
        name.focus()
        page.keyboard.press("Enter")
        expect_findings(page, 1)
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_role("group", name="Images", exact=True)).to_contain_text(" of 5")
        expect(page.get_by_role("row", name=FORMULA)).not_to_contain_class("selected")
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
        page.get_by_label("Show", exact=True).select_option("Failed")
        expect(names(page)).to_have_text(["north/torn.jpg"])
        page.get_by_label("Show", exact=True).select_option("Without results")
        expect(names(page)).to_have_text(["north/photo.jpg"])
        page.get_by_label("Show", exact=True).select_option("All")
        page.get_by_label("Confidence threshold").press("End")
        expect(page.get_by_role("row", name="north/scene.jpg").locator(".col-found")).to_have_text("0")
        page.get_by_label("Confidence threshold").fill("0.5")
        # The first image of a folder may be the damaged one, which has nothing to save.
        page.get_by_role("button", name="north/scene.jpg").click()
        expect_findings(page, 5)
        saved = json.loads(download(page, "JSON"))
        answers = {answer["name"]: answer for answer in saved["pictures"]}
        assert len(answers["north/scene.jpg"]["records"]) == 5
        assert set(answers["north/torn.jpg"]) == {"name", "error"}
        rows = list(csv.reader(io.StringIO(download(page, "CSV").decode())))
        assert rows[0] == ["file", "labels", "best_score", "found", "milliseconds", "error"]
        found = {row[0]: row for row in rows[1:]}
        assert found["north/scene.jpg"][3] == "5"
        assert found["north/torn.jpg"][5]
        page.get_by_label("Choose files").set_input_files([folder / "deeper" / FORMULA, folder / "photo.jpg"])
        expect(page.get_by_text("2 answered in")).to_be_visible()
        rows = list(csv.reader(io.StringIO(download(page, "CSV").decode())))
        # A spreadsheet must not run a file name as a formula.
        assert rows[1][:2] == [f"'{FORMULA}", "blue star"]


def test_run_goes_on_while_another_view_is_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector", size=(1280, 720)) as page:
        expect_findings(page, 5)
        held_routes: list[Route] = []
        page.route("**/infer", lambda route: held_routes.append(route))
        page.get_by_label("Choose files").set_input_files(
            [IMAGES / f"{name}.jpg" for name in ("scene", "shape", "photo")]
        )
        stop = page.get_by_role("group", name="Images", exact=True).get_by_role("button", name="Stop")
        expect(stop).to_be_visible()
        assert box_of(stop)["y"] < 200
        page.get_by_role("navigation").get_by_role("link", name="Models").click()
        expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
        for route in held_routes:
            route.continue_()
        page.get_by_role("navigation").get_by_role("link", name="Try").click()
        expect(page.get_by_text("3 answered in")).to_be_visible()
        expect_findings(page, 5)
        assert len(held_routes) == 3


def test_server_that_does_not_answer_shows_seconds_and_a_way_to_stop(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector") as page:
        expect_findings(page, 5)
        page.route("**/infer", lambda _: None)
        page.get_by_role("button", name="Sample shape.jpg").click()
        expect(page.get_by_text(re.compile(r"^Running \u2026 \d+ s$"))).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
        page.get_by_role("button", name="Use in code").click()
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_text(re.compile(r"^Sending \u2026 \d+ s$"))).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Stopped", exact=True)).to_be_visible()


def test_many_images_are_sent_again_if_the_server_is_busy_shown_in_parts_and_can_be_stopped(
    browser: Browser, server: str, tmp_path: Path
) -> None:
    for number in range(120):
        (tmp_path / f"{number:03}.jpg").hardlink_to(IMAGES / "shape.jpg")
    rejected: list[str] = []

    def reject_once(route: Route) -> None:
        # As an overloaded server does.
        if rejected:
            route.continue_()
        else:
            rejected.append("once")
            route.fulfill(status=429, json={"error": "Too many requests are waiting"})

    with open_page(browser, f"{server}/#try?model=classifier", expect_errors=True) as page:
        expect_findings(page, 20)
        page.route("**/infer", reject_once)
        page.get_by_label("Choose files").set_input_files(sorted(tmp_path.glob("*.jpg")))
        # A busy machine takes more than a minute for them.
        expect(page.get_by_text("120 answered in")).to_be_visible(timeout=300_000)
        assert rejected == ["once"]
        expect(names(page)).to_have_count(100)
        page.get_by_role("button", name="Show more").click()
        expect(names(page)).to_have_count(120)
        page.route("**/infer", lambda route: None)
        page.get_by_label("Model").select_option("detector")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Stopped after 0 of 120 images")).to_be_visible()
