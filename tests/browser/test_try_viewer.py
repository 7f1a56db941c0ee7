"""The image of the page's view Try: labels, colours, zoom, hovering, and downloads of what is drawn."""

import io
import json

import numpy as np
import PIL.Image
from playwright.sync_api import Page, expect

from tests.browser.looking import box_of
from tests.browser.try_view import IMAGES, PIXEL, download, expect_drawn, infer, pixel, rows


def test_hovering_links_the_list_and_the_shapes(server: str, scene: Page) -> None:
    record = infer(server, "detector", (IMAGES / "scene.jpg").read_bytes())[0]
    # The list is written again when the explanations add their button to each row.
    expect(rows(scene).get_by_role("button", name="Explain")).to_have_count(5)
    scene.get_by_role("button", name="1:1, actual size").click()
    expect_drawn(scene)
    stage = box_of(scene.locator(".stage"))
    # Inside the border of one pixel.
    x = (stage["width"] - 2 - 640) / 2 + (record["xmin"] + record["xmax"]) / 2
    y = (stage["height"] - 2 - 480) / 2 + (record["ymin"] + record["ymax"]) / 2
    assert pixel(scene, "shapes", x, y)[3] == 0
    rows(scene).first.hover()
    scene.wait_for_function(f"where => ({PIXEL})(where)[3] > 30", arg=["highlight", round(x), round(y)])
    expect(scene.locator(".stage")).to_contain_class("highlighting")
    scene.mouse.move(stage["x"] + 1 + x, stage["y"] + 1 + y)
    expect(rows(scene).first).to_have_class("selected")
    scene.mouse.move(0, 0)
    expect(rows(scene).first).not_to_have_class("selected")
    expect(scene.locator(".stage")).not_to_contain_class("highlighting")
    rows(scene).nth(1).get_by_role("button").first.focus()
    expect(rows(scene).nth(1).get_by_role("button").first).to_be_focused()


def test_image_is_zoomed_and_moved_by_keyboard(scene: Page) -> None:
    stage = scene.get_by_role("group", name="scene.jpg with results")
    stage.focus()
    scene.keyboard.press("0")
    zoom = scene.locator(".zoom")
    fitted = zoom.inner_text()
    scene.keyboard.press("1")
    expect(zoom).to_have_text("100 %")
    scene.keyboard.press("+")
    expect(zoom).to_have_text("125 %")
    scene.keyboard.press("-")
    expect(zoom).to_have_text("100 %")
    expect_drawn(scene)
    before = scene.evaluate("document.querySelector('canvas.image').toDataURL()")
    scene.keyboard.press("ArrowRight")
    scene.wait_for_function("before => document.querySelector('canvas.image').toDataURL() !== before", arg=before)
    scene.keyboard.press("0")
    expect(zoom).to_have_text(fitted)
    stage.hover()
    scene.mouse.wheel(0, -200)
    expect(zoom).not_to_have_text(fitted)
    stage.dblclick()
    expect(zoom).to_have_text(fitted)


def test_findings_are_downloaded_as_json_and_png(server: str, scene: Page) -> None:
    records = infer(server, "detector", (IMAGES / "scene.jpg").read_bytes())
    plain = json.loads(download(scene, "JSON"))
    assert (plain["model"], plain["pictures"][0]["name"]) == ("detector", "scene.jpg")
    assert plain["pictures"][0]["records"] == records
    image = PIL.Image.open(io.BytesIO(download(scene, "PNG")))
    assert image.size == (640, 480)
    drawn = np.asarray(image.convert("RGB"), int)
    with PIL.Image.open(IMAGES / "scene.jpg") as plain_image:
        original = np.asarray(plain_image.convert("RGB"), int)
    changed = np.abs(drawn - original).sum(axis=2) > 60
    best = records[0]
    # The lower left corner of the box: elsewhere the line runs over a shape of its colour.
    x, y = round(best["xmin"]), round(best["ymax"]) - 25
    assert changed[y - 20 : y + 20, x - 2 : x + 2].any(axis=1).mean() > 0.7
    assert not changed[y, x + 10 : x + 60].any()


def test_masks_are_filled_with_their_holes(scene: Page) -> None:
    outer = [(4.0, 4.0), (4.0, 30.0), (40.0, 30.0), (52.0, 4.0)]
    hole = [(10.0, 10.0), (20.0, 10.0), (20.0, 20.0), (10.0, 20.0)]
    speck = [(60.0, 33.0)]
    contour = [[{"x": x, "y": y} for x, y in ring] for ring in (outer, hole, speck)]
    record = {"label": "ring", "score": 0.9, "contour": contour}
    make = """async record => {
      const { shapesOf, paint } = await import("/page/drawing.js");
      const shapes = shapesOf("IMAGE_SEGMENTATION", [record], 64, 36);
      const canvas = new OffscreenCanvas(64, 36);
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.fillRect = context.fillText = () => {};
      paint(context, shapes);
      const alpha = (x, y) => context.getImageData(x, y, 1, 1).data[3];
      return [alpha(7, 20), alpha(15, 15), alpha(60, 33), alpha(62, 2)];
    }"""
    filled, in_hole, single, outside = scene.evaluate(make, record)
    assert 80 < filled < 130
    assert in_hole == outside == 0
    assert single > 100


# Names of boxes beside each other, or of lines of text below each other, of 200 x 20 pixels.
NAMES = """async ([count, label, task = "OBJECT_DETECTION"]) => {
  const { paint, shapesOf } = await import("/page/drawing.js");
  const line = (index) => ({ cx: 0.2, cy: 0.1 + 0.021 * index, w: 0.1, h: 0.02, r: 0 });
  const at = (index) => ({ xmin: 3 * index, ymin: 2 * index, xmax: 3 * index + 40, ymax: 2 * index + 30 });
  const record = (index) => ({ label, score: 1 - index / 1000, ...at(index), ...line(index) });
  const records = Array.from({ length: count }, (_, index) => record(index));
  const [plates, texts] = [[], []];
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillRect = (...plate) => plates.push(plate);
  context.fillText = (text) => texts.push(text);
  paint(context, shapesOf(task, records, 2000, 1000), { width: 2000 });
  return [plates, texts];
}"""


def test_names_do_not_overlap_and_the_best_is_shown(scene: Page) -> None:
    plates, texts = scene.evaluate(NAMES, [300, "crowd"])
    assert 30 < len(plates) < 300
    assert texts[0] == "crowd 100 %"
    for index, (left, top, width, height) in enumerate(plates):
        for other_left, other_top, other_width, other_height in plates[:index]:
            apart = left >= other_left + other_width or other_left >= left + width
            assert apart or top >= other_top + other_height or other_top >= top + height
    (_, _, width, _), *_ = scene.evaluate(NAMES, [1, "long " * 100])[0]
    assert width < 500
    # The name of a line covers no other line: the first has room above, and all have it beside them.
    lines = scene.evaluate(NAMES, [6, "text", "ORIENTED_OBJECT_DETECTION"])[0]
    assert len(lines) == 6
    assert [left >= 500 or top + height <= 91 for left, top, _, height in lines] == [True] * 6
    # One label needs no name on every shape.
    assert [text for text in texts if "crowd" in text] == ["crowd 100 %"]
    assert scene.evaluate(NAMES, [1, "\u202eexe.png"])[1] == ["\u2068\u202eexe.png\u2069 100 %"]
