"""Trying models in a browser: what is drawn is what the server answers, however a picture came to the page."""

import io
import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tasks.vision.contours import mask_of_contours
from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, Scheme, Size, fits, looking
from tests.support.chariot import image_input
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.polling import wait_until
from tests.support.ports import listening_port
from tests.support.server_process import ROOT, serving

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"
SCAFFOLD = ROOT / "app" / "cli" / "scaffold"
SHAPES = (Path(__file__).parent / "shapes.js").read_text().rstrip().removesuffix(";")
NASTY = "<img src=x onerror=alert(1)>.jpg"
TEXTS = ("text_classification", "token_classification", "text_generation")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The fixture models, and a model of each task of texts."""
    repository = tmp_path_factory.mktemp("repository")
    for model in MODELS.iterdir():
        (repository / model.name).symlink_to(model)
    for name in TEXTS:
        shutil.copytree(SCAFFOLD / name, repository / name, ignore=shutil.ignore_patterns("test_*"))
    with serving("--model-repository", str(repository), "--allow-code") as server:
        yield server.address


def answer(server: str, model: str, picture: bytes, **parameters: object) -> list[dict[str, Any]]:
    """The records of one picture."""
    body = {"inputs": [image_input(base64_text(picture))], "parameters": parameters}
    response = httpx.post(f"{server}/v2/models/m-{model}/infer", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]["data"][0]


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name="What was found").locator("ol.records li")


def told(page: Page, number: int) -> None:
    """Wait until so many findings are listed."""
    expect(rows(page)).to_have_count(number)


def slide(page: Page, name: str, value: float) -> None:
    page.get_by_role("slider", name=name).fill(str(value))


def polygons(model: str, records: list[dict[str, Any]], width: int, height: int) -> list[dict[str, Any]]:
    """Where records should be drawn, worked out from the documentation (docs/chariot.md, Coordinates)."""
    found: list[dict[str, Any]] = []
    for each in records:
        if model == "detector":
            left, top, right, bottom = each["xmin"], each["ymin"], each["xmax"], each["ymax"]
            rings = [[[left, top], [right, top], [right, bottom], [left, bottom]]]
        elif model == "oriented-detector":
            centre = complex(each["cx"] * width, each["cy"] * height)
            half = complex(each["w"] * width / 2, each["h"] * height / 2)
            turn = complex(math.cos(each["r"]), math.sin(each["r"]))
            corners = [half, complex(-half.real, half.imag), -half, complex(half.real, -half.imag)]
            rings = [[[point.real, point.imag] for point in (centre + corner * turn for corner in corners)]]
        else:
            rings = [[[point["x"] + 0.5, point["y"] + 0.5] for point in ring] for ring in each["contour"]]
        found += [{"label": each["label"], "points": ring} for ring in rings]
    return found


def compare_drawn(page: Page, model: str, records: list[dict[str, Any]], width: int, height: int) -> None:
    page.get_by_role("button", name="1:1, one pixel to one").click()
    expect(page.get_by_text("100 %", exact=True)).to_be_visible()
    wanted = {"polygons": polygons(model, records, width, height), "width": width, "height": height}
    page.wait_for_function(
        f"wanted => ({SHAPES})(wanted).then(found => found.missing.length <= 0.02 * found.looked)", arg=wanted
    )
    found = page.evaluate(SHAPES, wanted)
    assert found["looked"] > 40
    # Where one shape lies over the edge of another.
    assert len(found["missing"]) <= 0.02 * found["looked"]
    assert found["farthest"] < 1


@pytest.mark.parametrize(
    ("model", "sample"),
    [("detector", "scene.jpg"), ("oriented-detector", "oriented.jpg"), ("segmenter", "scene.jpg")],
)
def test_shapes_are_drawn_where_the_answer_has_them(browser: Browser, server: str, model: str, sample: str) -> None:
    records = answer(server, model, (IMAGES / sample).read_bytes())
    assert len(records) > 2
    with looking(browser, f"{server}/#try?model={model}") as page:
        page.get_by_role("button", name=f"Sample {sample}").click()
        told(page, len(records))
        assert page.url.endswith(f"#try?model={model}&sample={sample}")
        labels = [f"{each['label']}\n{100 * each['score']:.1f} %" for each in records]
        assert rows(page).all_inner_texts() == labels
        with PIL.Image.open(IMAGES / sample) as picture:
            width, height = picture.size
        compare_drawn(page, model, records, width, height)


def test_a_picture_that_lies_on_its_side_is_drawn_upright(browser: Browser, server: str, tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "sideways.jpg"
    with PIL.Image.open(IMAGES / "scene.jpg") as upright:
        upright.transpose(PIL.Image.Transpose.ROTATE_90).save(path, quality=95, exif=exif)
    records = answer(server, "detector", path.read_bytes())
    with looking(browser, f"{server}/#try?model=detector") as page:
        page.get_by_label("Choose files").set_input_files(path)
        told(page, len(records))
        compare_drawn(page, "detector", records, 640, 480)


def test_classes_are_bars(browser: Browser, server: str) -> None:
    records = answer(server, "classifier", (IMAGES / "shape.jpg").read_bytes())
    with looking(browser, f"{server}/#try?model=classifier&sample=shape.jpg") as page:
        told(page, 20)
        assert rows(page).all_inner_texts()[0] == f"{records[0]['label']}\n{100 * records[0]['score']:.1f} %"
        widths = page.eval_on_selector_all(".bar > span", "all => all.map(each => parseFloat(each.style.width))")
        assert widths == pytest.approx([100 * each["score"] for each in records], abs=0.01)
        slide(page, "Score at least", 0.5)
        told(page, 1)
        expect(page.get_by_role("button", name="COCO")).to_have_count(0)


@pytest.mark.parametrize("model", ["detector", "oriented-detector"])
def test_sliders_leave_what_the_server_would(browser: Browser, server: str, model: str) -> None:
    sample = "scene.jpg" if model == "detector" else "oriented.jpg"
    picture = (IMAGES / sample).read_bytes()
    asked: list[str] = []
    with looking(browser, f"{server}/#try?model={model}&sample={sample}") as page:
        expect(rows(page).first).to_be_visible()
        page.on("request", lambda request: asked.append(request.url))
        for score, iou in ((0.1, 0.45), (0.05, 0.9), (0.05, 0.6), (0.2, 0.3), (0.9, 0.3), (0.05, 0.0)):
            slide(page, "Score at least", score)
            if iou != 0.45:
                slide(page, "IoU at most", iou)
            wanted = answer(server, model, picture, score_threshold=score, iou_threshold=iou)
            told(page, len(wanted))
            assert [each.split("\n")[0] for each in rows(page).all_inner_texts()] == [each["label"] for each in wanted]
        # Only the slider of overlaps asks anew where it comes to rest, and once for all that overlap.
        assert len(asked) == 6
        slide(page, "IoU at most", 0.9)
        page.get_by_label("Findings at most").fill("2")
        page.get_by_label("Findings at most").press("Tab")
        told(page, 2)


def test_a_score_that_nothing_reaches_is_said(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect(rows(page).first).to_be_visible()
        slide(page, "Score at least", 1)
        told(page, 0)
        expect(page.get_by_text("Nothing scores that high.")).to_be_visible()


def test_labels_can_be_hidden(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=segmenter&sample=scene.jpg") as page:
        told(page, 5)
        circles = page.get_by_role("button", name="circle (2)")
        circles.click()
        told(page, 3)
        expect(circles).to_have_attribute("aria-pressed", "false")
        circles.click()
        told(page, 5)


PIXEL = """([name, x, y]) => {
  const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  copy.drawImage(document.querySelector(`canvas.${name}`), -x, -y);
  return [...copy.getImageData(0, 0, 1, 1).data];
}"""


def pixel(page: Page, canvas: str, x: float, y: float) -> list[int]:
    """Red, green, blue and opacity at a point of the stage, of the picture ("ground") or of what is drawn over it."""
    return page.evaluate(PIXEL, [canvas, round(x), round(y)])


def test_the_list_and_the_shapes_are_linked(browser: Browser, server: str) -> None:
    record = answer(server, "detector", (IMAGES / "scene.jpg").read_bytes())[0]
    with looking(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        told(page, 5)
        page.get_by_role("button", name="1:1, one pixel to one").click()
        stage = page.locator(".stage").bounding_box()
        assert stage is not None
        # Inside the border of one pixel.
        x = (stage["width"] - 2 - 640) / 2 + (record["xmin"] + record["xmax"]) / 2
        y = (stage["height"] - 2 - 480) / 2 + (record["ymin"] + record["ymax"]) / 2
        assert pixel(page, "over", x, y)[3] == 0
        rows(page).first.hover()
        page.wait_for_function(f"where => ({PIXEL})(where)[3] > 30", arg=["top", round(x), round(y)])
        expect(page.locator(".stage")).to_contain_class("choosing")
        page.mouse.move(stage["x"] + 1 + x, stage["y"] + 1 + y)
        expect(rows(page).first).to_have_class("chosen")
        page.mouse.move(0, 0)
        expect(rows(page).first).not_to_have_class("chosen")
        expect(page.locator(".stage")).not_to_contain_class("choosing")
        rows(page).nth(1).get_by_role("button").focus()
        expect(rows(page).nth(1).get_by_role("button")).to_be_focused()


def test_a_picture_is_looked_at_by_keyboard(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        told(page, 5)
        stage = page.get_by_role("group", name="scene.jpg with what was found in it")
        stage.focus()
        zoom = page.locator(".zoom")
        fitted = zoom.inner_text()
        page.keyboard.press("1")
        expect(zoom).to_have_text("100 %")
        page.keyboard.press("+")
        expect(zoom).to_have_text("125 %")
        page.keyboard.press("-")
        expect(zoom).to_have_text("100 %")
        before = page.evaluate("document.querySelector('canvas.ground').toDataURL()")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("before => document.querySelector('canvas.ground').toDataURL() !== before", arg=before)
        page.keyboard.press("0")
        expect(zoom).to_have_text(fitted)
        stage.hover()
        page.mouse.wheel(0, -200)
        expect(zoom).not_to_have_text(fitted)
        stage.dblclick()
        expect(zoom).to_have_text(fitted)


def test_a_sample_can_be_taken_again(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        told(page, 5)
        page.get_by_label("Choose files").set_input_files(IMAGES / "photo.jpg")
        expect(page.get_by_role("group", name="photo.jpg with what was found in it")).to_be_visible()
        page.get_by_role("button", name="Sample scene.jpg").click()
        told(page, 5)
        page.get_by_role("button", name="Sample shape.jpg").click()
        told(page, 1)
        page.go_back()
        told(page, 5)


def test_several_pictures_at_once(browser: Browser, server: str) -> None:
    names = ["scene.jpg", "shape.jpg", "photo.jpg"]
    counts = [len(answer(server, "detector", (IMAGES / name).read_bytes())) for name in names]
    with looking(browser, f"{server}/#try?model=detector") as page:
        page.get_by_label("Choose files").set_input_files([IMAGES / name for name in names])
        strip = page.get_by_role("group", name="Pictures", exact=True)
        for place, (name, count) in enumerate(zip(names, counts, strict=True)):
            thumb = strip.get_by_role("button", name=f"{name}, {place + 1} of 3")
            expect(thumb).to_have_text(str(count))
            thumb.focus()
            page.keyboard.press("Enter")
            expect(thumb).to_have_attribute("aria-pressed", "true")
            told(page, count)
        # Another model is asked about the same pictures.
        page.get_by_role("combobox", name="Model").select_option("classifier")
        for place, name in enumerate(names):
            expect(strip.get_by_role("button", name=f"{name}, {place + 1} of 3").locator("span")).not_to_be_empty()
        page.get_by_role("button", name="Remove all").click()
        expect(page.get_by_text("Drop or paste pictures here")).to_be_visible()
        told(page, 0)


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_pictures_are_dropped_and_pasted(browser: Browser, server: str, event: str) -> None:
    give = """([event, name, data]) => {
      const transfer = new DataTransfer();
      const bytes = Uint8Array.from(atob(data), each => each.charCodeAt(0));
      transfer.items.add(new File([bytes], name, { type: "image/jpeg" }));
      const options = { bubbles: true, cancelable: true };
      const paste = () => new ClipboardEvent("paste", { ...options, clipboardData: transfer });
      const drop = () => new DragEvent("drop", { ...options, dataTransfer: transfer });
      document.querySelector("main").dispatchEvent(event === "paste" ? paste() : drop());
    }"""
    with looking(browser, f"{server}/#try?model=detector") as page:
        expect(page.get_by_role("button", name="Camera")).to_be_visible()
        page.evaluate(give, [event, NASTY, base64_text((IMAGES / "scene.jpg").read_bytes())])
        told(page, 5)
        expect(page.get_by_role("group", name=f"{NASTY} with what was found in it")).to_be_visible()
        assert page.locator("main img").count() == 0


def test_a_picture_is_taken_by_the_camera(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=classifier") as page:
        page.context.grant_permissions(["camera"])
        page.get_by_role("button", name="Camera").click()
        dialog = page.get_by_role("dialog", name="Camera")
        page.wait_for_function("() => document.querySelector('video')?.videoWidth > 0")
        dialog.get_by_role("button", name="Take picture").click()
        expect(dialog).to_be_hidden()
        told(page, 20)
        expect(page.get_by_role("group", name="camera.jpg with what was found in it")).to_be_visible()


def test_a_camera_that_may_not_be_used_is_said(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=classifier") as page:
        page.context.clear_permissions()
        page.evaluate(
            "() => { const no = async () => { throw new DOMException('Permission denied') };"
            "navigator.mediaDevices.getUserMedia = no }"
        )
        page.get_by_role("button", name="Camera").click()
        expect(page.get_by_role("alert")).to_have_text("The camera cannot be used: Permission denied")


def test_what_is_no_picture_is_said_in_the_servers_words(browser: Browser, server: str, tmp_path: Path) -> None:
    path = tmp_path / NASTY
    path.write_bytes(b"not a picture")
    with looking(browser, f"{server}/#try?model=detector", broken=True) as page:
        page.get_by_label("Choose files").set_input_files(path)
        expect(page.get_by_role("alert")).to_contain_text("inputs[0].data[0]")
        page.get_by_role("button", name="Sample scene.jpg").click()
        told(page, 5)
        expect(page.get_by_role("alert")).to_be_hidden()


def test_a_wrong_parameter_is_said(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=segmenter&sample=scene.jpg", broken=True) as page:
        told(page, 5)
        page.get_by_label("Simplify contours").fill("-1")
        page.get_by_label("Simplify contours").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("epsilon")


def test_a_server_that_is_gone_is_said(browser: Browser) -> None:
    models = ("--model", str(MODELS / "detector"))
    with serving(*models) as gone, looking(browser, f"{gone.address}/#try", broken=True) as page:
        expect(page.get_by_role("button", name="Sample scene.jpg")).to_be_visible()
        assert gone.stop() == 0
        page.get_by_label("Choose files").set_input_files(IMAGES / "scene.jpg")
        expect(page.get_by_role("alert")).to_have_text("The server cannot be reached")


@pytest.mark.parametrize("protocol", ["chariot-v2-kserve", "chariot-v2"])
def test_either_of_chariots_protocols_will_do(browser: Browser, protocol: str) -> None:
    arguments = ("--model", str(MODELS / "detector"), "--chariot-protocol", protocol)
    with serving(*arguments) as server, looking(browser, f"{server.address}/#try?sample=scene.jpg") as page:
        told(page, 5)


def test_questions_are_answered_piece_by_piece(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=vlm") as page:
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.get_by_role("alert")).to_have_text("Give it a picture first.")
        expect(page.get_by_role("group", name="Zoom")).to_be_hidden()
        page.get_by_role("button", name="Sample shape.jpg").click()
        expect(page.get_by_role("group", name="Zoom")).to_be_visible()
        question = page.get_by_role("textbox", name="Question")
        talk = page.get_by_role("log", name="Questions and answers")
        page.evaluate(
            "() => { window.pieces = [];"
            "const note = node => node.nodeType === 3 && window.pieces.push(node.data);"
            "new MutationObserver(all => all.forEach(each => each.addedNodes.forEach(note)))"
            ".observe(document.querySelector('.dialogue'), { childList: true, subtree: true }) }"
        )
        for asked, said in (("What shape is in the picture?", "star"), ("What color is the shape?", "blue")):
            question.fill(asked)
            question.press("Enter")
            expect(talk.get_by_role("listitem").last).to_have_text(f"{asked}{said}")
        question.fill("What is in the picture?")
        question.press("Enter")
        expect(talk.get_by_role("listitem")).to_have_count(3)
        expect(talk.get_by_role("listitem").last).to_contain_text("a blue star")
        expect(talk.locator("[aria-busy]")).to_have_count(0)
        assert page.evaluate("pieces") == ["star", "blue", "a", " blue", " star"]


def test_texts_are_read(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=token_classification") as page:
        # Entities count characters; the first of these takes two of JavaScript's.
        page.get_by_role("textbox", name="Text").fill("\U0001f600 yesterday Ada went to Paris")
        page.get_by_role("textbox", name="Text").press("Control+Enter")
        marks = page.locator("mark")
        expect(marks).to_have_count(2)
        assert [each.split("NAME")[0] for each in marks.all_inner_texts()] == ["Ada", "Paris"]
        page.goto(f"{server}/#try?model=text_classification")
        page.get_by_role("button", name="Run").click()
        expect(rows(page).first).to_be_visible()
        page.goto(f"{server}/#try?model=text_generation")
        page.get_by_role("textbox", name="Text").fill("<b>Once</b>")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("log")).to_contain_text("<b>Once</b>")
        expect(page.locator(".answer")).not_to_have_text("")
        page.get_by_role("textbox", name="Text").fill(" ")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert")).to_have_text("Write something first.")


def test_tensors_go_in_and_out(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=half_plus_two", broken=True) as page:
        box = page.get_by_role("textbox", name="Tensors by name, as JSON")
        expect(box).to_have_value('{"x":[1,1]}')
        box.fill('{"x": [1, 2, 5]}')
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("group", name="y", exact=True)).to_have_text("[2.5,3,4.5]")
        for wrong, said in (("{", "cannot be read"), ("[1]", "an object with x"), ('{"x": ["a"]}', "inputs[0].data")):
            box.fill(wrong)
            page.get_by_role("button", name="Run").click()
            expect(page.get_by_role("alert")).to_contain_text(said)


def downloaded(page: Page, name: str) -> bytes:
    with page.expect_download() as found:
        page.get_by_role("group", name="Download").get_by_role("button", name=name).click()
    return found.value.path().read_bytes()


def test_what_was_found_is_downloaded(browser: Browser, server: str) -> None:
    records = answer(server, "detector", (IMAGES / "scene.jpg").read_bytes())
    with looking(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        told(page, 5)
        plain = json.loads(downloaded(page, "JSON"))
        assert (plain["model"], plain["pictures"][0]["name"]) == ("detector", "scene.jpg")
        assert plain["pictures"][0]["records"] == records
        picture = PIL.Image.open(io.BytesIO(downloaded(page, "PNG")))
        assert picture.size == (640, 480)
        drawn = np.asarray(picture.convert("RGB"), int)
        with PIL.Image.open(IMAGES / "scene.jpg") as undrawn:
            original = np.asarray(undrawn.convert("RGB"), int)
        changed = np.abs(drawn - original).sum(axis=2) > 60
        best = records[0]
        x, y = round(best["xmin"]), round((best["ymin"] + best["ymax"]) / 2)
        # A yellow line on a picture that is yellow in places.
        assert changed[y - 20 : y + 20, x - 2 : x + 2].any(axis=1).mean() > 0.7
        assert not changed[y, x + 10 : x + 60].any()
        coco = json.loads(downloaded(page, "COCO"))
        assert coco["images"] == [{"id": 1, "file_name": "scene.jpg", "width": 640, "height": 480}]
        names = {each["id"]: each["name"] for each in coco["categories"]}
        for each, record in zip(coco["annotations"], records, strict=True):
            left, top, width, height = each["bbox"]
            assert names[each["category_id"]] == record["label"]
            assert [left, top] == [record["xmin"], record["ymin"]]
            assert [left + width, top + height] == pytest.approx([record["xmax"], record["ymax"]])


def test_masks_are_downloaded_and_filled_with_their_holes(browser: Browser, server: str) -> None:
    outer = [(4.0, 4.0), (4.0, 30.0), (40.0, 30.0), (52.0, 4.0)]
    hole = [(10.0, 10.0), (20.0, 10.0), (20.0, 20.0), (10.0, 20.0)]
    speck = [(60.0, 33.0)]
    contours = [outer, hole, speck]
    record = {
        "label": "ring",
        "score": 0.9,
        "contour": [[{"x": x, "y": y} for x, y in ring] for ring in contours],
    }
    make = """async record => {
      const { shapesOf, paint } = await import("/page/drawing.js");
      const { coco } = await import("/page/export.js");
      const shapes = shapesOf("IMAGE_SEGMENTATION", [record], 64, 36);
      const picture = { name: "a.png", width: 64, height: 36 };
      const file = coco({ labels: ["ring"] }, [{ picture, shapes, records: [record] }]);
      const canvas = new OffscreenCanvas(64, 36);
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.fillRect = context.fillText = () => {};
      paint(context, shapes);
      const alpha = (x, y) => context.getImageData(x, y, 1, 1).data[3];
      return { coco: JSON.parse(await file.text()), alpha: [alpha(7, 20), alpha(15, 15), alpha(60, 33), alpha(62, 2)] };
    }"""
    with looking(browser, f"{server}/#try") as page:
        found = page.evaluate(make, record)
    annotation = found["coco"]["annotations"][0]
    assert annotation["iscrowd"] == 1
    runs = annotation["segmentation"]["counts"]
    flat = np.concatenate([np.full(length, place % 2, np.uint8) for place, length in enumerate(runs)])
    mask = flat.reshape(64, 36).T
    wanted = mask_of_contours([np.array(ring, np.float32) for ring in contours], 64, 36)
    assert (mask == wanted).all()
    assert annotation["area"] == wanted.sum()
    filled, in_hole, single, outside = found["alpha"]
    assert 80 < filled < 130
    assert in_hole == outside == 0
    assert single > 100


def test_colours_of_labels_are_their_own(browser: Browser, server: str) -> None:
    ask = """async names => {
      const { colourOf, inkOn } = await import("/page/drawing.js");
      return names.map(each => [colourOf(each), inkOn(each)]);
    }"""
    names = ["cat", "dog", "blue circle", "", "\U0001f600", "person" * 50, *(f"class {each}" for each in range(40))]
    with looking(browser, f"{server}/#try") as page:
        first = page.evaluate(ask, names)
        page.reload()
        assert page.evaluate(ask, names[::-1]) == first[::-1]
    assert len({colour for colour, _ in first}) > 40
    for colour, ink in first:
        shares = [int(each) / 255 for each in re.findall(r"\d+", colour)]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        contrast = (light + 0.05) / 0.05 if ink == "#000" else 1.05 / (light + 0.05)
        assert contrast >= 4.5, (colour, ink)


def test_a_large_picture_is_shown(browser: Browser, server: str, tmp_path: Path) -> None:
    pixels = rectangle(3840, 2160, (1000, 500, 2000, 1500))
    path = tmp_path / "large.png"
    path.write_bytes(encoded(pixels))
    with looking(browser, f"{server}/#try?model=classifier") as page:
        page.get_by_label("Choose files").set_input_files(path)
        told(page, 20)
        width, height = page.evaluate("['width', 'height'].map(each => document.querySelector('canvas.ground')[each])")
        scale = min(width / 3840, height / 2160)
        left, top = (width - 3840 * scale) / 2, (height - 2160 * scale) / 2
        for (x, y), bright in (((1500, 1000), 255), ((990, 1000), 0), ((1010, 1000), 255), ((2010, 1000), 0)):
            found = pixel(page, "ground", round(left + x * scale), round(top + y * scale))
            assert abs(found[0] - bright) < 60, (x, y)


def test_what_the_browser_cannot_show_is_asked_all_the_same(browser: Browser, server: str, tmp_path: Path) -> None:
    path = tmp_path / "scene.tiff"
    with PIL.Image.open(IMAGES / "scene.jpg") as picture:
        picture.save(path)
    records = answer(server, "detector", path.read_bytes())
    with looking(browser, f"{server}/#try?model=detector") as page:
        page.get_by_label("Choose files").set_input_files(path)
        told(page, len(records))
        expect(page.get_by_role("alert")).to_contain_text("cannot show this kind of picture")


NAMES = """async ([count, label]) => {
  const { paint, shapesOf } = await import("/page/drawing.js");
  const at = (index) => ({ xmin: 3 * index, ymin: 2 * index, xmax: 3 * index + 40, ymax: 2 * index + 30 });
  const records = Array.from({ length: count }, (_, index) => ({ label, score: 1 - index / 1000, ...at(index) }));
  const [plates, texts] = [[], []];
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillRect = (...plate) => plates.push(plate);
  context.fillText = (text) => texts.push(text);
  paint(context, shapesOf("OBJECT_DETECTION", records, 2000, 1000), { width: 2000 });
  return [plates, texts];
}"""


def test_no_name_lies_over_another_and_the_best_has_its_own(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try") as page:
        plates, texts = page.evaluate(NAMES, [300, "crowd"])
        assert 30 < len(plates) < 300
        assert texts[0] == "crowd 100 %"
        for place, (left, top, width, height) in enumerate(plates):
            for other_left, other_top, other_width, other_height in plates[:place]:
                apart = left >= other_left + other_width or other_left >= left + width
                assert apart or top >= other_top + other_height or other_top >= top + height
        (_, _, width, _), *_ = page.evaluate(NAMES, [1, "long " * 100])[0]
        assert width < 500
        assert page.evaluate(NAMES, [1, "\u202eexe.png"])[1] == ["\u2068\u202eexe.png\u2069 100 %"]


MANY = """async () => {
  const { viewer } = await import("/page/viewer.js");
  const { shapesOf } = await import("/page/drawing.js");
  const seen = viewer({ label: "many" });
  document.querySelector("main").replaceChildren(seen.element);
  const bitmap = await createImageBitmap(new ImageData(600, 400));
  seen.show({ name: "many", bitmap, width: 600, height: 400 });
  const corner = (x, y, k) => ({ x: x + 9 * Math.cos(k / 32), y: y + 9 * Math.sin(k / 32) });
  const ring = (x, y) => Array.from({ length: 200 }, (_, k) => corner(x, y, k));
  const contour = (k) => [ring(20 + 60 * (k % 10), 50 + 90 * (k >> 3))];
  const records = Array.from({ length: 40 }, (_, k) => ({ label: "a", score: 1, contour: contour(k) }));
  seen.shapes(shapesOf("IMAGE_SEGMENTATION", records, 600, 400));
}"""


def test_what_is_slow_to_paint_is_moved_first_and_painted_then(browser: Browser, server: str) -> None:
    over = "document.querySelector('canvas.over')"
    with looking(browser, f"{server}/#try?model=detector") as page:
        expect(page.get_by_role("button", name="Camera")).to_be_visible()
        page.evaluate(MANY)
        blank = page.evaluate("(canvas => canvas.toDataURL())(document.createElement('canvas'))")
        page.wait_for_function(f"blank => {over}.toDataURL().length > 4 * blank.length", arg=blank)
        before = page.evaluate(f"{over}.toDataURL()")
        moved = f"""() => new Promise(resolve => {{
          const seen = new MutationObserver(() => resolve({over}.style.transform));
          seen.observe({over}, {{ attributeFilter: ["style"] }});
          document.querySelector(".stage").dispatchEvent(new WheelEvent("wheel", {{ deltaY: -200, cancelable: true }}));
        }})"""
        assert "scale(1.3" in page.evaluate(moved)
        page.wait_for_function(f"before => {over}.style.transform === '' && {over}.toDataURL() !== before", arg=before)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("where", ["", "?model=detector&sample=scene.jpg", "?model=vlm&sample=shape.jpg"])
def test_it_can_be_read_everywhere(
    browser: Browser, server: str, scheme: Scheme, size: Size, where: str, tmp_path: Path
) -> None:
    with looking(browser, f"{server}/#try{where}", size=size, scheme=scheme) as page:
        if "vlm" in where:
            expect(page.get_by_role("group", name="Zoom")).to_be_visible()
            page.get_by_role("button", name="Ask", exact=True).click()
            expect(page.locator(".answer")).to_have_text("a blue star")
        elif where:
            told(page, 5)
        else:
            expect(page.get_by_text("Drop or paste pictures here")).to_be_visible()
        page.screenshot(path=tmp_path / f"{scheme}-{size[0]}.png", full_page=True)
        fits(page, size)
        assert violations(page) == []


def test_models_that_load_are_waited_for(browser: Browser, tmp_path: Path) -> None:
    repository, arrived = tmp_path / "repository", tmp_path / "arrived"
    shutil.copytree(SCAFFOLD / "text_classification", repository / "slow")
    code = repository / "slow" / "model.py"
    waiting = f"import pathlib, time\nwhile not pathlib.Path({str(arrived)!r}).exists(): time.sleep(0.05)\n"
    code.write_text(f"{waiting}{code.read_text()}")
    only_http = ("--no-grpc", "--no-tensorflow-serving")
    with serving("--model-repository", str(repository), "--allow-code", *only_http) as server:
        wait_until(lambda: listening_port(server.process.pid) is not None)
        address = f"http://127.0.0.1:{listening_port(server.process.pid)}"
        with httpx.Client(transport=httpx.HTTPTransport(retries=10), timeout=60) as client:
            assert client.get(f"{address}/health", timeout=60).status_code == 200
        with looking(browser, f"{address}/#try") as page:
            expect(page.get_by_role("alert")).to_contain_text("No model is ready")
            arrived.touch()
            expect(page.get_by_role("button", name="Run")).to_be_visible()
            expect(page.get_by_role("alert")).to_be_hidden()
        assert server.stop() == 0
