"""The page's view of a folder: everything in it is sent once, and the table is of what came back."""

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from tests.browser.looking import looking
from tests.support.server_process import ROOT, serving

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"
FORMULA = "=cmd.jpg"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving("--model-repository", str(MODELS)) as process:
        yield process.address


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two levels: four pictures, one that is torn, one that is none."""
    made = tmp_path / "north"
    (made / "deeper").mkdir(parents=True)
    for name in ("scene.jpg", "photo.jpg"):
        shutil.copy(IMAGES / name, made / name)
    shutil.copy(IMAGES / "shape.jpg", made / "deeper" / FORMULA)
    shutil.copy(IMAGES / "scene.jpg", made / "deeper" / "again.jpg")
    (made / "torn.jpg").write_bytes(b"\xff\xd8\xff torn")
    (made / "notes.txt").write_text("no picture")
    return made


def names(page: Page) -> list[str]:
    return page.locator("tbody .of-name").all_inner_texts()


def sent(page: Page, folder: Path) -> None:
    page.locator("input[webkitdirectory]").set_input_files(folder)
    expect(page.get_by_text("4 answered, 1 failed")).to_be_visible()


def test_a_folder_goes_through(browser: Browser, server: str, folder: Path, tmp_path: Path) -> None:
    with looking(browser, f"{server}/#batch?model=detector", broken=True) as page:
        asked: list[Request] = []
        page.on("request", lambda request: asked.append(request) if request.method == "POST" else None)
        sent(page, folder)
        assert len(asked) == 5
        expect(page.get_by_text("1 file is no picture and was left out")).to_be_visible()
        assert names(page) == [
            f"north/{each}" for each in (f"deeper/{FORMULA}", "deeper/again.jpg", "photo.jpg", "scene.jpg", "torn.jpg")
        ]
        scene = page.get_by_role("row", name="north/scene.jpg")
        expect(scene.locator(".of-label")).to_have_text(
            "yellow circle, purple star, green circle, blue square, yellow square"
        )
        expect(scene.locator(".of-found")).to_have_text("5")
        expect(page.get_by_role("row", name="photo.jpg").locator(".of-label")).to_have_text("nothing")
        expect(page.get_by_role("row", name="torn.jpg").locator(".of-label")).to_contain_text("truncated or damaged")
        # The middle of a thumbnail has the colours of its picture.
        middle = "(canvas) => canvas.getContext('2d').getImageData(32, 32, 1, 1).data[3]"
        page.wait_for_function(f"({middle})(document.querySelectorAll('.thumbnail')[3]) === 255")
        page.screenshot(path=tmp_path / "batch.png", full_page=True)


def test_the_table_is_sorted_searched_and_narrowed(browser: Browser, server: str, folder: Path) -> None:
    with looking(browser, f"{server}/#batch?model=detector", broken=True) as page:
        sent(page, folder)
        page.get_by_role("button", name="Found").click()
        found = page.get_by_role("columnheader", name="Found")
        expect(found).to_have_attribute("aria-sort", "descending")
        assert [each.rsplit("/", 1)[1] for each in names(page)][-1] == "torn.jpg"
        assert page.locator("tbody .of-found").all_inner_texts() == ["5", "5", "1", "0", ""]
        page.get_by_role("button", name="Found").click()
        expect(found).to_have_attribute("aria-sort", "ascending")
        assert page.locator("tbody .of-found").all_inner_texts() == ["0", "1", "5", "5", ""]
        page.get_by_label("Search").fill("YELLOW")
        expect(page.get_by_text("2 of 5 pictures")).to_be_visible()
        page.get_by_label("Search").fill("")
        page.get_by_label("Show").select_option("Failed")
        assert names(page) == ["north/torn.jpg"]
        page.get_by_label("Show").select_option("Without findings")
        assert names(page) == ["north/photo.jpg"]
        page.get_by_label("Show").select_option("All")
        page.get_by_label("Score threshold").press("End")
        expect(page.get_by_role("row", name="north/scene.jpg").locator(".of-found")).to_have_text("0")


def test_what_came_back_is_saved(browser: Browser, server: str, folder: Path) -> None:
    with looking(browser, f"{server}/#batch?model=detector", broken=True) as page:
        sent(page, folder)
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save as JSON").click()
        saved = json.loads(waiting.value.path().read_text())
        assert (saved["model"], saved["score_threshold"]) == ("detector", 0.5)
        answers = {each["file"]: each for each in saved["answers"]}
        assert len(answers["north/scene.jpg"]["records"]) == 5
        assert set(answers["north/torn.jpg"]) == {"file", "error"}
        shutil.copy(IMAGES / "shape.jpg", folder / FORMULA)
        page.locator("input[accept]").last.set_input_files(folder / FORMULA)
        expect(page.get_by_text("1 answered in")).to_be_visible()
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save as CSV").click()
        rows = list(csv.reader(io.StringIO(waiting.value.path().read_text())))
        assert rows[0] == ["file", "labels", "best_score", "found", "milliseconds", "error"]
        # A spreadsheet is not to run a file's name.
        assert rows[1][0] == f"'{FORMULA}"
        assert rows[1][1] == "blue star"


def test_a_picture_is_opened_and_closed_by_keyboard(browser: Browser, server: str, folder: Path) -> None:
    with looking(browser, f"{server}/#batch?model=detector", broken=True) as page:
        sent(page, folder)
        name = page.get_by_role("button", name="north/scene.jpg")
        name.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="north/scene.jpg")
        expect(dialog).to_contain_text("yellow circle, purple star")
        expect(dialog.get_by_role("button", name="Close")).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(name).to_be_focused()


def test_a_busy_server_is_asked_again_later(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#batch?model=classifier", broken=True) as page:
        refused: list[str] = []

        def sometimes(route: Route) -> None:
            # The first request is refused as a full server refuses it.
            if not refused:
                refused.append("once")
                route.fulfill(status=429, json={"error": "Too many requests are waiting"})
            else:
                route.continue_()

        page.route("**/infer", sometimes)
        page.locator("input[accept]").last.set_input_files([IMAGES / "shape.jpg", IMAGES / "scene.jpg"])
        expect(page.get_by_text("2 answered in")).to_be_visible()
        assert refused == ["once"]


def test_a_long_folder_is_stopped_and_shown_in_parts(browser: Browser, server: str, tmp_path: Path) -> None:
    for place in range(150):
        (tmp_path / f"{place:03}.jpg").hardlink_to(IMAGES / "shape.jpg")
    with looking(browser, f"{server}/#batch?model=classifier") as page:
        page.locator("input[accept]").last.set_input_files(sorted(tmp_path.glob("*.jpg")))
        expect(page.get_by_text("150 answered in")).to_be_visible()
        assert len(names(page)) == 100
        page.get_by_role("button", name="Show more").click()
        assert len(names(page)) == 150
        page.route("**/infer", lambda route: None)
        page.get_by_label("Model").select_option("detector")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Stopped after 0 of 150 pictures")).to_be_visible()
