"""Colours of labels, and what is drawn of shapes."""

import json
import re
from pathlib import Path

import httpx
import numpy as np
import PIL.Image
from playwright.sync_api import Browser, Page, expect

from app.plugins.authoring.drawing.palette import colour_of
from tests.browser.axe import violations
from tests.browser.looking import open_page
from tests.browser.try_view import expect_drawn, expect_findings

COLOURS = """async names => {
  const { colourOf, inkOn } = await import("/page/palette.js");
  return names.map(name => [colourOf(name), inkOn(name)]);
}"""


def test_labels_have_the_colours_of_commands_and_readable_ink(server: str, scene: Page) -> None:
    models = httpx.get(f"{server}/page/models.json", timeout=60).json()["models"]
    labels = next(model["labels"] for model in models if model["name"] == "detector")
    others = ["okapi", "blue whale", "", "\U0001f600", "person" * 50, *(f"class {number}" for number in range(40))]
    found = scene.evaluate(COLOURS, [*labels, *others])
    for label, (text, ink) in zip([*labels, *others], found, strict=True):
        colour = bytes.fromhex(text[1:])
        assert tuple(colour) == colour_of(label, labels)
        shares = [channel / 255 for channel in colour]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        contrast = (light + 0.05) / 0.05 if ink == "#000" else 1.05 / (light + 0.05)
        assert contrast >= 4.5, (text, ink)


INK = """(() => {
  const canvas = document.querySelector("canvas.shapes");
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  return copy.getImageData(0, 0, canvas.width, canvas.height).data.reduce((sum, value) => sum + value, 0);
})()"""


def expect_less_ink(page: Page, before: int) -> int:
    """Wait until less is drawn over the image than before, and return how much is left."""
    page.wait_for_function(f"before => {INK} < 0.98 * before", arg=before)
    return page.evaluate(INK)


def test_labels_boxes_names_scores_and_masks_can_be_switched_off(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=segmenter&sample=scene.jpg") as page:
        expect_findings(page, 5)
        circles = page.get_by_role("button", name="circle (2)")
        circles.click()
        expect_findings(page, 3)
        expect(circles).to_have_attribute("aria-pressed", "false")
        circles.click()
        expect_findings(page, 5)
        drawn = page.get_by_role("group", name="Drawn")
        left = page.evaluate(INK)
        for name in ("Scores", "Names", "Outlines"):
            drawn.get_by_role("checkbox", name=name).uncheck()
            left = expect_less_ink(page, left)
        drawn.get_by_role("slider", name="Mask opacity").fill("0")
        page.wait_for_function(f"() => {INK} === 0")
        assert violations(page) == []
        # Boxes have no masks, and every viewer keeps what was chosen.
        page.goto(f"{server}/#try?model=detector&sample=scene.jpg&second=segmenter")
        expect(page.get_by_text("only first").first).to_be_visible()
        boxes = page.get_by_role("checkbox", name="Boxes")
        expect(boxes).not_to_be_checked()
        expect(page.get_by_role("slider", name="Mask opacity")).to_have_count(1)
        page.get_by_role("checkbox", name="Names").first.check()
        expect(page.get_by_role("checkbox", name="Names").last).to_be_checked()


DOTS = """(([width, height, points]) => {
  const canvas = document.querySelector("canvas.shapes");
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const at = ([x, y]) => [x + (canvas.width - width) / 2, y + (canvas.height - height) / 2].map(Math.round);
  return points.map((point) => copy.getImageData(...at(point), 1, 1).data[3]);
})"""


def test_keypoints_of_a_pose_are_drawn_and_can_be_switched_off(browser: Browser, server: str, tmp_path: Path) -> None:
    PIL.Image.fromarray(np.full((128, 256, 3), 90, np.uint8)).save(tmp_path / "image.png")
    points = [[120, 56], [140, 76]]
    with open_page(browser, f"{server}/#try?model=pose") as page:
        page.locator("input[type=file]").first.set_input_files(tmp_path / "image.png")
        expect(page.get_by_role("group", name="image.png with results")).to_be_visible()
        expect_findings(page, 1)
        page.get_by_role("button", name="1:1, actual size").click()
        expect_drawn(page)
        page.wait_for_function(f"points => {DOTS}([256, 128, points]).join() === '255,0'", arg=points)
        page.get_by_role("checkbox", name="Keypoints").uncheck()
        page.wait_for_function(f"points => {DOTS}([256, 128, points]).join() === '0,0'", arg=points)


def test_places_in_an_answer_are_drawn_and_its_json_is_indented(browser: Browser, server: str) -> None:
    answer = '```json\n[{"bbox_2d": [10, 20, 500, 600], "label": "sun"}]\n```'
    box = {"label": "sun", "score": 0.9, "xmin": 3, "ymin": 4, "xmax": 150, "ymax": 120}
    places = [box, {"label": "eye", "score": 0.9, "x": 30, "y": 40}]
    grounding = {"objects": places, "note": "1 printed place could not be read"}
    deltas = [{"role": "assistant", "content": ""}, {"content": answer}, {"grounding": grounding}]
    events = "".join(f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n" for delta in deltas)
    with open_page(browser, f"{server}/#try?model=vlm&sample=scene.jpg") as page:
        page.route("**/v1/chat/completions", lambda route: route.fulfill(body=events, content_type="text/event-stream"))
        page.get_by_role("button", name="Ask").click()
        shown = page.get_by_role("log", name="Questions and answers")
        expect(shown.locator("code")).to_have_text(re.compile(r'\n    "bbox_2d": \[10, 20, 500, 600\],\n'))
        expect(shown).to_contain_text("(1 printed place could not be read)")
        page.wait_for_function(f"{INK} > 0")
