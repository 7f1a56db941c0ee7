"""The page's compare view: the objects on both sides, and the list of differences."""

import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.looking import open_page
from tests.browser.zero_shot import open_zero_shot, sent_labels
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"

# Whether something is drawn within a pixel of the middle of each side of a box: (canvas, box, size of the image).
DRAWN = """([side, [left, top, right, bottom], [width, height]]) => {
  const canvas = document.querySelectorAll("canvas.shapes")[side];
  const scale = Math.min(canvas.width / width, canvas.height / height);
  const [x, y] = [(canvas.width - width * scale) / 2, (canvas.height - height * scale) / 2];
  const [across, down] = [(left + right) / 2, (top + bottom) / 2];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const sides = [[left, down], [right, down], [across, bottom]];
  return sides.map(([px, py]) => {
    const at = [Math.round(x + px * scale) - 1, Math.round(y + py * scale) - 1, 3, 3];
    return copy.getImageData(...at).data.some((value, place) => place % 4 === 3 && value > 128);
  });
}"""

pytestmark = pytest.mark.slow


def records(server: str, model: str, image: str) -> list[dict[str, Any]]:
    body = {"inputs": [image_input(encode_base64((IMAGES / image).read_bytes()))]}
    answer = httpx.post(f"{server}/v2/models/m-{model}/infer", json=body, timeout=60).raise_for_status().json()
    return answer["outputs"][0]["data"][0]


def rows(page: Page) -> list[list[str]]:
    table_rows = page.get_by_role("region", name="Differences").locator("tbody tr").all()
    return [[cell.strip() for cell in row.locator("th, td").all_inner_texts()] for row in table_rows]


def test_each_side_draws_objects_above_its_threshold(browser: Browser, server: str) -> None:
    detections = sorted(records(server, "detector", "scene.jpg"), key=lambda record: -record["score"])
    assert len(detections) == 5
    threshold = (detections[1]["score"] + detections[2]["score"]) / 2
    url = f"{server}/#compare?a=detector&b=detector&image=scene.jpg&score_a=0.3&score_b={threshold}"
    with open_page(browser, url) as page:
        expect(page.get_by_text("2 in both, 3 only left, 0 only right")).to_be_visible()
        for record in detections:
            box = [record[key] for key in ("xmin", "ymin", "xmax", "ymax")]
            assert page.evaluate(DRAWN, [0, box, [640, 480]]) == [True] * 3
            assert all(page.evaluate(DRAWN, [1, box, [640, 480]])) is (record["score"] >= threshold)
        assert rows(page) == [
            [
                record["label"],
                f"{100 * record['score']:.1f} %",
                f"{100 * record['score']:.1f} %" if record["score"] >= threshold else "\u2013",
                "\u00b10.0" if record["score"] >= threshold else "only left",
                "1.00" if record["score"] >= threshold else "\u2013",
            ]
            for record in detections
        ]


def test_threshold_slider_sends_no_request(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#compare?a=detector&b=detector&image=scene.jpg&score_a=0.5&score_b=0.5") as page:
        expect(page.get_by_text("5 in both, 0 only left, 0 only right")).to_be_visible()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url) if request.method == "POST" else None)
        page.get_by_role("region", name="Right").get_by_label("Confidence threshold").press("End")
        expect(page.get_by_text("0 in both, 5 only left, 0 only right")).to_be_visible()
        assert requests == []
        expect(page).to_have_url(re.compile("score_b=1"))
        page.reload()
        expect(page.get_by_text("0 in both, 5 only left, 0 only right")).to_be_visible()


def test_classes_of_one_model_are_compared_by_name(browser: Browser, server: str) -> None:
    url = f"{server}/#compare?a=classifier&b=classifier&image=shape.jpg&score_a=0.05&score_b=0.05"
    with open_page(browser, url) as page:
        expect(page.get_by_text("1 in both, 0 only left, 0 only right")).to_be_visible()
        assert rows(page)[0][0] == "blue star"
        expect(page.get_by_role("columnheader", name="IoU")).to_be_hidden()


def test_classes_and_boxes_cannot_be_matched(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#compare?a=classifier&b=detector&image=shape.jpg") as page:
        expect(page.get_by_text("cannot be compared. The left model found blue star, 98.")).to_be_visible()


def test_zoom_applies_to_both_images(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#compare?image=scene.jpg") as page:
        stages = page.locator(".stage")
        before = stages.nth(1).locator("xpath=..").locator(".zoom").inner_text()
        stages.nth(0).focus()
        page.keyboard.press("+")
        zooms = [page.locator(".zoom").nth(index) for index in (0, 1)]
        expect(zooms[1]).not_to_have_text(before)
        expect(zooms[0]).to_have_text(zooms[1].inner_text())


def test_hovering_a_row_highlights_its_shapes(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#compare?a=detector&b=detector&image=scene.jpg&score_a=0.5&score_b=0.5") as page:
        expect(page.get_by_text("5 in both")).to_be_visible()
        plain = page.evaluate("[...document.querySelectorAll('canvas.highlight')].map((canvas) => canvas.toDataURL())")
        page.get_by_role("row", name="purple star").hover()
        expect(page.get_by_role("row", name="purple star")).to_have_class("selected")
        canvases = "[...document.querySelectorAll('canvas.highlight')]"
        page.wait_for_function(
            f"(plain) => {canvases}.every((canvas, at) => canvas.toDataURL() !== plain[at])", arg=plain
        )


def test_a_row_is_reached_by_keyboard(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#compare?a=detector&b=detector&image=scene.jpg&score_a=0.5&score_b=0.5") as page:
        first = page.get_by_role("region", name="Differences").get_by_role("button", name="yellow circle")
        first.focus()
        page.keyboard.press("Tab")
        expect(page.get_by_role("row", name="purple star")).to_have_class("selected")
        expect(page.get_by_role("row", name="yellow circle")).not_to_have_class("selected")


def test_unknown_model_is_reported(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#compare?a=lost&b=detector&image=scene.jpg") as page:
        expect(page.get_by_role("alert")).to_contain_text("lost cannot be used here. Choose a ready model for")


def test_candidate_labels_are_sent_to_zero_shot_models_only(browser: Browser, server: str) -> None:
    with open_zero_shot(browser, f"{server}/#compare?a=segmenter&b=detector&image=scene.jpg", "detector") as page:
        expect(page.get_by_role("alert")).to_contain_text("Enter candidate labels: detector")
        sent: list[tuple[str, Any]] = []
        page.on("request", lambda request: sent.append(sent_labels(request)) if request.method == "POST" else None)
        page.get_by_role("textbox", name="Candidate labels").fill("cup, spoon")
        with page.expect_response(re.compile("/m-detector/infer")):
            page.keyboard.press("Enter")
        assert dict(sent) == {"m-detector": ["cup", "spoon"], "m-segmenter": None}
        page.goto(f"{server}/#compare?a=segmenter&b=classifier")
        expect(page.get_by_role("textbox", name="Candidate labels")).to_be_hidden()
