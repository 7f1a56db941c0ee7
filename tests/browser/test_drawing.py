"""Colours of labels, and what is drawn of shapes."""

import math
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import violations
from tests.browser.looking import open_page
from tests.core.runtimes.onnxruntime import graphs
from tests.support.servers.server_process import run_server

pytestmark = pytest.mark.slow


COLOURS = """async labels => {
  const { assignColours, colourOf } = await import("/page/palette.js");
  assignColours([{ labels }]);
  return labels.map(colourOf);
}"""


def colours(page: Page, labels: list[str]) -> list[tuple[int, int, int]]:
    """Return red, green and blue of each label of one model."""
    found = [re.findall(r"\d+", colour) for colour in page.evaluate(COLOURS, labels)]
    return [(int(red), int(green), int(blue)) for red, green, blue in found]


def test_labels_of_a_model_have_distinct_colours_and_the_ones_they_name(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        animals = colours(page, [f"animal {number}" for number in range(24)])
        assert min(math.dist(one, other) for one, other in combinations(animals, 2)) > 40
        red, green, blue, cat = colours(page, ["red car", "Green car", "car, blue", "cat"])
        assert red[0] > 180 > 90 > max(red[1:])
        assert green[1] > 120 > 90 > green[0]
        assert blue[2] > 180 > 110 > max(blue[:2])
        assert min(math.dist(cat, other) for other in (red, green, blue)) > 60
        same = colours(page, ["red car", "red bus", "red van", "red"])
        assert same[0] == red
        assert len(set(same)) == 4
        assert all(colour[0] > max(colour[1:]) for colour in same)
        many = colours(page, [f"class {number}" for number in range(1000)])
        assert len(set(many)) > 100


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


def test_boxes_names_scores_and_masks_can_be_switched_off(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=segmenter&sample=scene.jpg") as page:
        expect(page.get_by_role("region", name="Results").locator("ol.records li")).to_have_count(5)
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


def test_keypoints_of_a_pose_are_drawn_and_can_be_switched_off(browser: Browser, tmp_path: Path) -> None:
    # The letterbox halves the image of 256x128 to 128x64, and puts it 32 pixels below the top.
    box, shown, hidden = [64, 64, 60, 50], [60, 60, 0.9], [70, 70, 0.1]
    graphs.constant(
        tmp_path / "model.onnx",
        {"output0": graphs.raw([[*box, 0.75, *shown, *hidden]])},
        shape=("b", 3, 128, 128),
        properties=graphs.properties("pose", ("person",), (128, 128), kpt_shape="[2, 3]"),
    )
    PIL.Image.fromarray(np.full((128, 256, 3), 90, np.uint8)).save(tmp_path / "image.png")
    points = [[120, 56], [140, 76]]
    with (
        run_server("--model", str(tmp_path / "model.onnx")) as process,
        open_page(browser, process.address) as page,
    ):
        page.locator("input[type=file]").first.set_input_files(tmp_path / "image.png")
        expect(page.get_by_role("region", name="Results").locator("ol.records li")).to_have_count(1)
        page.get_by_role("button", name="1:1, actual size").click()
        page.wait_for_function(f"points => {DOTS}([256, 128, points]).join() === '255,0'", arg=points)
        page.get_by_role("checkbox", name="Keypoints").uncheck()
        page.wait_for_function(f"points => {DOTS}([256, 128, points]).join() === '0,0'", arg=points)
