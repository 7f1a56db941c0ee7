"""The page's try view: it draws the answers of the server, for images from every source."""

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
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tasks.vision.contours import mask_of_contours
from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, Scheme, Size, assert_fits, open_page
from tests.support.chariot import image_input
from tests.support.images import encode_base64, encode_image, rectangle
from tests.support.polling import wait_until
from tests.support.ports import listening_port
from tests.support.server_process import ROOT, run_server

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"
SCAFFOLD = ROOT / "app" / "cli" / "model" / "scaffold"
SHAPES = (Path(__file__).parent / "shapes.js").read_text().rstrip().removesuffix(";")
HTML_NAME = "<img src=x onerror=alert(1)>.jpg"
TEXTS = ("text_classification", "token_classification", "text_generation")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server with the fixture models and a model of each text task."""
    repository = tmp_path_factory.mktemp("repository")
    for model in MODELS.iterdir():
        (repository / model.name).symlink_to(model)
    for name in TEXTS:
        shutil.copytree(SCAFFOLD / name, repository / name, ignore=shutil.ignore_patterns("test_*"))
    with run_server("--model-repository", str(repository), "--allow-code") as server:
        yield server.address


def infer(server: str, model: str, image: bytes, **parameters: object) -> list[dict[str, Any]]:
    """Return the records of one image."""
    body = {"inputs": [image_input(encode_base64(image))], "parameters": parameters}
    response = httpx.post(f"{server}/v2/models/m-{model}/infer", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]["data"][0]


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Results").locator("ol.records li")


def expect_findings(page: Page, number: int) -> None:
    """Wait until this number of findings is listed."""
    expect(rows(page)).to_have_count(number)


def slide(page: Page, name: str, value: float) -> None:
    page.get_by_role("slider", name=name).fill(str(value))


def polygons(model: str, records: list[dict[str, Any]], width: int, height: int) -> list[dict[str, Any]]:
    """Return where records should be drawn, derived from the documentation (docs/chariot.md, Coordinates)."""
    shapes: list[dict[str, Any]] = []
    for record in records:
        if model == "detector":
            left, top, right, bottom = record["xmin"], record["ymin"], record["xmax"], record["ymax"]
            rings = [[[left, top], [right, top], [right, bottom], [left, bottom]]]
        elif model == "oriented-detector":
            centre = complex(record["cx"] * width, record["cy"] * height)
            half = complex(record["w"] * width / 2, record["h"] * height / 2)
            turn = complex(math.cos(record["r"]), math.sin(record["r"]))
            corners = [half, complex(-half.real, half.imag), -half, complex(half.real, -half.imag)]
            rings = [[[point.real, point.imag] for point in (centre + corner * turn for corner in corners)]]
        else:
            rings = [[[point["x"] + 0.5, point["y"] + 0.5] for point in ring] for ring in record["contour"]]
        shapes += [{"label": record["label"], "points": ring} for ring in rings]
    return shapes


def assert_drawn(page: Page, model: str, records: list[dict[str, Any]], width: int, height: int) -> None:
    page.get_by_role("button", name="1:1, actual size").click()
    expect(page.get_by_text("100 %", exact=True)).to_be_visible()
    expected = {"polygons": polygons(model, records, width, height), "width": width, "height": height}
    page.wait_for_function(
        f"expected => ({SHAPES})(expected).then(result => result.missing.length <= 0.02 * result.checked)", arg=expected
    )
    result = page.evaluate(SHAPES, expected)
    assert result["checked"] > 40
    # A shape may cover the edge of another.
    assert len(result["missing"]) <= 0.02 * result["checked"]
    assert result["farthest"] < 1


@pytest.mark.parametrize(
    ("model", "sample"),
    [("detector", "scene.jpg"), ("oriented-detector", "oriented.jpg"), ("segmenter", "scene.jpg")],
)
def test_shapes_are_drawn_where_the_answer_has_them(browser: Browser, server: str, model: str, sample: str) -> None:
    records = infer(server, model, (IMAGES / sample).read_bytes())
    assert len(records) > 2
    with open_page(browser, f"{server}/#try?model={model}&sample=photo.jpg") as page:
        # The buttons move when the first image appears.
        expect(page.get_by_role("group", name="photo.jpg with results")).to_be_visible()
        page.get_by_role("button", name=f"Sample {sample}").click()
        expect_findings(page, len(records))
        expect(page).to_have_url(re.compile(f"#try\\?model={model}&sample={sample}"))
        expect(rows(page)).to_have_text([f"{record['label']}{100 * record['score']:.1f} %" for record in records])
        with PIL.Image.open(IMAGES / sample) as image:
            width, height = image.size
        assert_drawn(page, model, records, width, height)


def test_image_with_exif_rotation_is_drawn_upright(browser: Browser, server: str, tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "sideways.jpg"
    with PIL.Image.open(IMAGES / "scene.jpg") as upright:
        upright.transpose(PIL.Image.Transpose.ROTATE_90).save(path, quality=95, exif=exif)
    records = infer(server, "detector", path.read_bytes())
    with open_page(browser, f"{server}/#try?model=detector") as page:
        page.get_by_label("Choose files").set_input_files(path)
        expect(page.get_by_role("group", name="sideways.jpg with results")).to_be_visible()
        expect_findings(page, len(records))
        assert_drawn(page, "detector", records, 640, 480)


def test_classes_are_shown_as_bars(browser: Browser, server: str) -> None:
    records = infer(server, "classifier", (IMAGES / "shape.jpg").read_bytes())
    with open_page(browser, f"{server}/#try?model=classifier&sample=shape.jpg") as page:
        expect_findings(page, 20)
        expect(rows(page).first).to_have_text(f"{records[0]['label']}{100 * records[0]['score']:.1f} %")
        widths = page.eval_on_selector_all(".bar > span", "all => all.map(bar => parseFloat(bar.style.width))")
        assert widths == pytest.approx([100 * record["score"] for record in records], abs=0.01)
        slide(page, "Confidence threshold", 0.5)
        expect_findings(page, 1)
        expect(page.get_by_role("button", name="COCO")).to_have_count(0)


@pytest.mark.parametrize("model", ["detector", "oriented-detector"])
def test_sliders_filter_like_the_server(browser: Browser, server: str, model: str) -> None:
    sample = "scene.jpg" if model == "detector" else "oriented.jpg"
    image = (IMAGES / sample).read_bytes()
    requests: list[str] = []
    with open_page(browser, f"{server}/#try?model={model}&sample={sample}") as page:
        expect(rows(page).first).to_be_visible()
        page.on("request", lambda request: requests.append(request.url) if "/infer" in request.url else None)
        for score, iou in ((0.1, 0.45), (0.05, 0.9), (0.05, 0.6), (0.2, 0.3), (0.9, 0.3), (0.05, 0.0)):
            slide(page, "Confidence threshold", score)
            if iou != 0.45:
                slide(page, "NMS IoU threshold", iou)
            expected = infer(server, model, image, score_threshold=score, iou_threshold=iou)
            expect_findings(page, len(expected))
            expect(rows(page).locator(".label")).to_have_text([record["label"] for record in expected])
        # Only the IoU slider sends requests: when it stops, and once for all overlapping boxes.
        assert len(requests) == 6
        slide(page, "NMS IoU threshold", 0.9)
        page.get_by_label("Max detections").fill("2")
        page.get_by_label("Max detections").press("Tab")
        expect_findings(page, 2)


def test_view_chosen_while_the_address_is_saved_is_opened(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect(rows(page).first).to_be_visible()
        # The timer that saves the threshold is due before the event of the new address.
        page.get_by_label("Confidence threshold").evaluate(
            """slider => {
                slider.value = 0.9;
                slider.dispatchEvent(new Event("input", { bubbles: true }));
                const { port1, port2 } = new MessageChannel();
                port1.onmessage = () => { location.hash = "#models"; };
                port2.postMessage(null);
                for (const start = performance.now(); performance.now() - start < 400; );
            }"""
        )
        expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
        expect(page).to_have_url(re.compile("#models$"))


def test_empty_result_above_the_score_threshold_is_reported(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect(rows(page).first).to_be_visible()
        slide(page, "Confidence threshold", 1)
        expect_findings(page, 0)
        expect(page.get_by_text("Nothing scores that high.")).to_be_visible()
        expect(page).to_have_url(f"{server}/#try?model=detector&sample=scene.jpg&score=1")
        page.get_by_role("button", name="Show the best score, 98.2 %").click()
        expect_findings(page, 1)
        expect(page).to_have_url(f"{server}/#try?model=detector&sample=scene.jpg&score=0.98")
        page.reload()
        expect_findings(page, 1)


def test_labels_can_be_hidden(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=segmenter&sample=scene.jpg") as page:
        expect_findings(page, 5)
        circles = page.get_by_role("button", name="circle (2)")
        circles.click()
        expect_findings(page, 3)
        expect(circles).to_have_attribute("aria-pressed", "false")
        circles.click()
        expect_findings(page, 5)


PIXEL = """([name, x, y]) => {
  const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  copy.drawImage(document.querySelector(`canvas.${name}`), -x, -y);
  return [...copy.getImageData(0, 0, 1, 1).data];
}"""


def pixel(page: Page, canvas: str, x: float, y: float) -> list[int]:
    """Return red, green, blue and opacity at a point of the layer "image", "shapes" or "highlight"."""
    return page.evaluate(PIXEL, [canvas, round(x), round(y)])


def test_hovering_links_the_list_and_the_shapes(browser: Browser, server: str) -> None:
    record = infer(server, "detector", (IMAGES / "scene.jpg").read_bytes())[0]
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect_findings(page, 5)
        page.get_by_role("button", name="1:1, actual size").click()
        stage = page.locator(".stage").bounding_box()
        assert stage is not None
        # Inside the border of one pixel.
        x = (stage["width"] - 2 - 640) / 2 + (record["xmin"] + record["xmax"]) / 2
        y = (stage["height"] - 2 - 480) / 2 + (record["ymin"] + record["ymax"]) / 2
        assert pixel(page, "shapes", x, y)[3] == 0
        rows(page).first.hover()
        page.wait_for_function(f"where => ({PIXEL})(where)[3] > 30", arg=["highlight", round(x), round(y)])
        expect(page.locator(".stage")).to_contain_class("highlighting")
        page.mouse.move(stage["x"] + 1 + x, stage["y"] + 1 + y)
        expect(rows(page).first).to_have_class("selected")
        page.mouse.move(0, 0)
        expect(rows(page).first).not_to_have_class("selected")
        expect(page.locator(".stage")).not_to_contain_class("highlighting")
        rows(page).nth(1).get_by_role("button").focus()
        expect(rows(page).nth(1).get_by_role("button")).to_be_focused()


def test_image_is_zoomed_and_moved_by_keyboard(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect_findings(page, 5)
        stage = page.get_by_role("group", name="scene.jpg with results")
        stage.focus()
        zoom = page.locator(".zoom")
        fitted = zoom.inner_text()
        page.keyboard.press("1")
        expect(zoom).to_have_text("100 %")
        page.keyboard.press("+")
        expect(zoom).to_have_text("125 %")
        page.keyboard.press("-")
        expect(zoom).to_have_text("100 %")
        before = page.evaluate("document.querySelector('canvas.image').toDataURL()")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("before => document.querySelector('canvas.image').toDataURL() !== before", arg=before)
        page.keyboard.press("0")
        expect(zoom).to_have_text(fitted)
        stage.hover()
        page.mouse.wheel(0, -200)
        expect(zoom).not_to_have_text(fitted)
        stage.dblclick()
        expect(zoom).to_have_text(fitted)


def test_sample_can_be_chosen_again(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect_findings(page, 5)
        page.get_by_label("Choose files").set_input_files(IMAGES / "photo.jpg")
        expect(page.get_by_role("group", name="photo.jpg with results")).to_be_visible()
        page.get_by_role("button", name="Sample scene.jpg").click()
        expect_findings(page, 5)
        page.get_by_role("button", name="Sample shape.jpg").click()
        expect_findings(page, 1)
        page.go_back()
        expect_findings(page, 5)


def test_several_images_are_answered_and_listed(browser: Browser, server: str) -> None:
    names = ["scene.jpg", "shape.jpg", "photo.jpg"]
    counts = [len(infer(server, "detector", (IMAGES / name).read_bytes())) for name in names]
    with open_page(browser, f"{server}/#try?model=detector") as page:
        page.get_by_label("Choose files").set_input_files([IMAGES / name for name in names])
        strip = page.get_by_role("group", name="Images", exact=True)
        for index, (name, count) in enumerate(zip(names, counts, strict=True)):
            thumb = strip.get_by_role("button", name=f"{name}, {index + 1} of 3")
            expect(thumb).to_have_text(str(count))
            thumb.focus()
            page.keyboard.press("Enter")
            expect(thumb).to_have_attribute("aria-pressed", "true")
            expect_findings(page, count)
        # The same images are sent to another model.
        page.get_by_role("combobox", name="Model").select_option("classifier")
        for index, name in enumerate(names):
            expect(strip.get_by_role("button", name=f"{name}, {index + 1} of 3").locator("span")).not_to_be_empty()
        page.get_by_role("button", name="Remove all").click()
        expect(page.get_by_text("Drop or paste images here")).to_be_visible()
        expect_findings(page, 0)


@pytest.mark.parametrize("event", ["drop", "paste"])
def test_images_are_accepted_by_drop_and_paste(browser: Browser, server: str, event: str) -> None:
    give = """([event, name, data]) => {
      const transfer = new DataTransfer();
      const bytes = Uint8Array.from(atob(data), character => character.charCodeAt(0));
      transfer.items.add(new File([bytes], name, { type: "image/jpeg" }));
      const options = { bubbles: true, cancelable: true };
      const paste = () => new ClipboardEvent("paste", { ...options, clipboardData: transfer });
      const drop = () => new DragEvent("drop", { ...options, dataTransfer: transfer });
      document.querySelector("main").dispatchEvent(event === "paste" ? paste() : drop());
    }"""
    with open_page(browser, f"{server}/#try?model=detector") as page:
        expect(page.get_by_role("button", name="Camera")).to_be_visible()
        page.evaluate(give, [event, HTML_NAME, encode_base64((IMAGES / "scene.jpg").read_bytes())])
        expect_findings(page, 5)
        expect(page.get_by_role("group", name=f"{HTML_NAME} with results")).to_be_visible()
        assert page.locator("main img[src='x']").count() == 0


def test_image_is_taken_by_the_camera(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=classifier") as page:
        page.context.grant_permissions(["camera"])
        page.get_by_role("button", name="Camera").click()
        dialog = page.get_by_role("dialog", name="Camera")
        page.wait_for_function("() => document.querySelector('video')?.videoWidth > 0")
        dialog.get_by_role("button", name="Take photo").click()
        expect(dialog).to_be_hidden()
        expect_findings(page, 20)
        expect(page.get_by_role("group", name="camera.jpg with results")).to_be_visible()


def test_denied_camera_is_reported_although_a_sample_arrives_later(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        samples: list[Route] = []
        page.route("**/samples/**", lambda route: samples.append(route))
        page.evaluate(
            "() => { const no = async () => { throw new DOMException('Permission denied') };"
            "navigator.mediaDevices.getUserMedia = no; location.hash = 'try?model=classifier' }"
        )
        page.get_by_role("button", name="Camera").click()
        error = page.get_by_text("The camera cannot be used: Permission denied")
        expect(error).to_be_visible()
        page.route("**/samples/**", lambda route: route.continue_())
        for sample in samples:
            sample.continue_()
        expect(rows(page).first).to_be_visible()
        expect(error).to_be_visible()


def test_camera_stops_when_the_view_is_left_before_it_opens(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=classifier") as page:
        page.context.grant_permissions(["camera"])
        page.evaluate(
            "() => { const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
            "navigator.mediaDevices.getUserMedia = async (options) => {"
            "window.camera = await open(options); location.hash = 'models';"
            "while (document.querySelector('.image-list')) await new Promise((resolve) => setTimeout(resolve, 10));"
            "return window.camera; } }"
        )
        page.get_by_role("button", name="Camera").click()
        expect(page.get_by_role("heading", level=1, name="Models")).to_be_visible()
        page.wait_for_function("() => window.camera.getTracks().every((track) => track.readyState === 'ended')")


def test_server_error_is_shown_for_an_invalid_image(browser: Browser, server: str, tmp_path: Path) -> None:
    path = tmp_path / HTML_NAME
    path.write_bytes(b"not a picture")
    with open_page(browser, f"{server}/#try?model=detector", expect_errors=True) as page:
        expect_findings(page, 5)
        page.get_by_label("Choose files").set_input_files(path)
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text(f"{HTML_NAME} is not an image. Supported: JPEG, PNG, WebP, BMP, TIFF, GIF.")
        expect(alert.locator("pre")).to_be_hidden()
        alert.get_by_text("Details").click()
        expect(alert.locator("pre")).to_contain_text("got 13 bytes that begin with 6e 6f 74")
        # The old answer does not stay beside the error.
        expect_findings(page, 0)
        page.get_by_role("button", name="Sample scene.jpg").click()
        expect_findings(page, 5)
        expect(page.get_by_role("alert")).to_be_hidden()


def test_invalid_parameter_is_reported(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=segmenter&sample=scene.jpg", expect_errors=True) as page:
        expect_findings(page, 5)
        page.get_by_label("Simplify contours").fill("-1")
        page.get_by_label("Simplify contours").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("epsilon")


def test_unreachable_server_is_reported(browser: Browser) -> None:
    models = ("--model", str(MODELS / "detector"))
    with run_server(*models) as process, open_page(browser, f"{process.address}/#try", expect_errors=True) as page:
        expect_findings(page, 5)
        assert process.stop() == 0
        page.get_by_label("Choose files").set_input_files(IMAGES / "scene.jpg")
        expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")


@pytest.mark.parametrize("protocol", ["chariot-v2-kserve", "chariot-v2"])
def test_try_view_works_with_both_chariot_protocols(browser: Browser, protocol: str) -> None:
    arguments = ("--model", str(MODELS / "detector"), "--chariot-protocol", protocol)
    with run_server(*arguments) as server, open_page(browser, f"{server.address}/#try?sample=scene.jpg") as page:
        expect_findings(page, 5)


def test_answers_are_streamed_in_chunks(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=vlm") as page:
        expect(page.get_by_role("group", name="Zoom")).to_be_visible()
        page.get_by_label("Choose files").set_input_files([IMAGES / "shape.jpg", IMAGES / "photo.jpg"])
        page.get_by_role("button", name="Remove all").click()
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.get_by_role("alert")).to_have_text("Add an image first.")
        expect(page.get_by_role("group", name="Zoom")).to_be_hidden()
        page.get_by_role("button", name="Sample shape.jpg").click()
        expect(page.get_by_role("group", name="Zoom")).to_be_visible()
        question = page.get_by_role("textbox", name="Question")
        talk = page.get_by_role("log", name="Questions and answers")
        page.evaluate(
            "() => { window.chunks = [];"
            "const note = node => node.nodeType === 3 && window.chunks.push(node.data);"
            "new MutationObserver(all => all.forEach(mutation => mutation.addedNodes.forEach(note)))"
            ".observe(document.querySelector('.dialogue'), { childList: true, subtree: true }) }"
        )
        for prompt, expected in (("What shape is in the picture?", "star"), ("What color is the shape?", "blue")):
            question.fill(prompt)
            question.press("Enter")
            expect(talk.get_by_role("listitem").last).to_have_text(f"{prompt}{expected}")
        question.fill("What is in the picture?")
        question.press("Enter")
        expect(talk.get_by_role("listitem")).to_have_count(3)
        expect(talk.get_by_role("listitem").last).to_contain_text("a blue star")
        expect(talk.locator("[aria-busy]")).to_have_count(0)
        assert page.evaluate("chunks") == ["star", "blue", "a", " blue", " star"]


def test_results_of_text_tasks_are_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=token_classification") as page:
        # Entities count characters; the first character here takes two UTF-16 units in JavaScript.
        page.get_by_role("textbox", name="Text").fill("\U0001f600 yesterday Ada went to Paris")
        page.get_by_role("textbox", name="Text").press("Control+Enter")
        marks = page.locator("mark")
        expect(marks).to_have_count(2)
        assert [mark.split("NAME")[0] for mark in marks.all_inner_texts()] == ["Ada", "Paris"]
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
        expect(page.get_by_role("alert")).to_have_text("Enter a text first.")


def test_tensors_are_entered_and_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=half_plus_two", expect_errors=True) as page:
        box = page.get_by_role("textbox", name="Tensors by name, as JSON")
        expect(box).to_have_value('{"x":[1,1]}')
        box.fill('{"x": [1, 2, 5]}')
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("group", name="y", exact=True)).to_have_text("[2.5,3,4.5]")
        for wrong, message in (
            ("{", "not valid JSON"),
            ("[1]", "an object with x"),
            ('{"x": ["a"]}', "inputs[0].data"),
        ):
            box.fill(wrong)
            page.get_by_role("button", name="Run").click()
            expect(page.get_by_role("alert")).to_contain_text(message)
            expect(page.get_by_role("group", name="y", exact=True)).to_have_count(0)


def download(page: Page, name: str) -> bytes:
    with page.expect_download() as waiting:
        page.get_by_role("group", name="Download").get_by_role("button", name=name).click()
    return waiting.value.path().read_bytes()


def test_findings_are_downloaded_as_json_png_and_coco(browser: Browser, server: str) -> None:
    records = infer(server, "detector", (IMAGES / "scene.jpg").read_bytes())
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect_findings(page, 5)
        plain = json.loads(download(page, "JSON"))
        assert (plain["model"], plain["pictures"][0]["name"]) == ("detector", "scene.jpg")
        assert plain["pictures"][0]["records"] == records
        image = PIL.Image.open(io.BytesIO(download(page, "PNG")))
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
        coco = json.loads(download(page, "COCO"))
        assert coco["images"] == [{"id": 1, "file_name": "scene.jpg", "width": 640, "height": 480}]
        names = {category["id"]: category["name"] for category in coco["categories"]}
        for annotation, record in zip(coco["annotations"], records, strict=True):
            left, top, width, height = annotation["bbox"]
            assert names[annotation["category_id"]] == record["label"]
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
      const image = { name: "a.png", width: 64, height: 36 };
      const file = coco({ labels: ["ring"] }, [{ image, shapes, records: [record] }]);
      const canvas = new OffscreenCanvas(64, 36);
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.fillRect = context.fillText = () => {};
      paint(context, shapes);
      const alpha = (x, y) => context.getImageData(x, y, 1, 1).data[3];
      return { coco: JSON.parse(await file.text()), alpha: [alpha(7, 20), alpha(15, 15), alpha(60, 33), alpha(62, 2)] };
    }"""
    with open_page(browser, f"{server}/#try") as page:
        result = page.evaluate(make, record)
    annotation = result["coco"]["annotations"][0]
    assert annotation["iscrowd"] == 1
    runs = annotation["segmentation"]["counts"]
    flat = np.concatenate([np.full(length, index % 2, np.uint8) for index, length in enumerate(runs)])
    mask = flat.reshape(64, 36).T
    expected = mask_of_contours([np.array(ring, np.float32) for ring in contours], 64, 36)
    assert (mask == expected).all()
    assert annotation["area"] == expected.sum()
    filled, in_hole, single, outside = result["alpha"]
    assert 80 < filled < 130
    assert in_hole == outside == 0
    assert single > 100


def test_label_colours_are_stable_distinct_and_readable(browser: Browser, server: str) -> None:
    ask = """async names => {
      const { colourOf, inkOn } = await import("/page/palette.js");
      return names.map(name => [colourOf(name), inkOn(name)]);
    }"""
    names = ["cat", "dog", "blue whale", "", "\U0001f600", "person" * 50, *(f"class {number}" for number in range(40))]
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        # Findings appear after the models are known, whose labels have colours of their own.
        expect_findings(page, 5)
        first = page.evaluate(ask, names)
        page.reload()
        expect_findings(page, 5)
        assert page.evaluate(ask, names[::-1]) == first[::-1]
    assert len({colour for colour, _ in first}) > 40
    for colour, ink in first:
        shares = [int(value) / 255 for value in re.findall(r"\d+", colour)]
        linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        contrast = (light + 0.05) / 0.05 if ink == "#000" else 1.05 / (light + 0.05)
        assert contrast >= 4.5, (colour, ink)


def test_large_image_is_shown(browser: Browser, server: str, tmp_path: Path) -> None:
    pixels = rectangle(3840, 2160, (1000, 500, 2000, 1500))
    path = tmp_path / "large.png"
    path.write_bytes(encode_image(pixels))
    with open_page(browser, f"{server}/#try?model=classifier") as page:
        page.get_by_label("Choose files").set_input_files(path)
        expect(page.get_by_role("group", name="large.png with results")).to_be_visible()
        expect_findings(page, 20)
        width, height = page.evaluate("['width', 'height'].map(side => document.querySelector('canvas.image')[side])")
        scale = min(width / 3840, height / 2160)
        left, top = (width - 3840 * scale) / 2, (height - 2160 * scale) / 2
        for (x, y), bright in (((1500, 1000), 255), ((990, 1000), 0), ((1010, 1000), 255), ((2010, 1000), 0)):
            colour = pixel(page, "image", round(left + x * scale), round(top + y * scale))
            assert abs(colour[0] - bright) < 60, (x, y)


def test_readable_images_are_used_if_another_file_is_not_an_image(
    browser: Browser, server: str, tmp_path: Path
) -> None:
    notes, more = tmp_path / "notes.txt", tmp_path / "more.jpg"
    for path in (notes, more):
        path.write_bytes(b"not a picture")
    with open_page(browser, f"{server}/#try?model=detector", expect_errors=True) as page:
        expect_findings(page, 5)
        page.get_by_label("Choose files").set_input_files([notes, IMAGES / "shape.jpg", more])
        expect(page.get_by_role("group", name="shape.jpg with results")).to_be_visible()
        expect_findings(page, 1)
        expect(page.get_by_role("alert")).to_contain_text("notes.txt is not an image.")
        expect(page.get_by_role("alert")).to_contain_text("1 other file cannot be read either.")


def test_image_that_the_browser_cannot_show_is_converted_by_the_server(
    browser: Browser, server: str, tmp_path: Path
) -> None:
    path = tmp_path / "scene.tiff"
    with PIL.Image.open(IMAGES / "scene.jpg") as image:
        image.save(path)
    records = infer(server, "detector", path.read_bytes())
    with open_page(browser, f"{server}/#try?model=detector") as page:
        page.get_by_label("Choose files").set_input_files(path)
        expect(page.get_by_role("group", name="scene.tiff with results")).to_be_visible()
        expect_findings(page, len(records))
        assert_drawn(page, "detector", records, 640, 480)
        with PIL.Image.open(IMAGES / "scene.jpg") as image:
            expected = image.convert("RGB").getpixel((320, 240))
        width, height = page.evaluate("['width', 'height'].map(side => document.querySelector('canvas.image')[side])")
        assert isinstance(expected, tuple)
        assert pixel(page, "image", width / 2, height / 2)[:3] == pytest.approx(expected, abs=12)


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


def test_names_do_not_overlap_and_the_best_is_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try") as page:
        plates, texts = page.evaluate(NAMES, [300, "crowd"])
        assert 30 < len(plates) < 300
        assert texts[0] == "crowd 100 %"
        for index, (left, top, width, height) in enumerate(plates):
            for other_left, other_top, other_width, other_height in plates[:index]:
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


def test_slow_shapes_are_moved_before_they_are_repainted(browser: Browser, server: str) -> None:
    over = "document.querySelector('canvas.shapes')"
    with open_page(browser, f"{server}/#try?model=detector") as page:
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
@pytest.mark.parametrize("query", ["", "?model=detector&sample=scene.jpg", "?model=vlm&sample=shape.jpg"])
def test_try_view_is_readable_on_every_screen(
    browser: Browser, server: str, scheme: Scheme, size: Size, query: str
) -> None:
    with open_page(browser, f"{server}/#try{query}", size=size, scheme=scheme) as page:
        if "vlm" in query:
            expect(page.get_by_role("group", name="Zoom")).to_be_visible()
            page.get_by_role("button", name="Ask", exact=True).click()
            expect(page.locator(".answer")).to_have_text("a blue star")
        elif query:
            expect_findings(page, 5)
        else:
            expect_findings(page, 5)
            page.get_by_label("Choose files").set_input_files([IMAGES / "scene.jpg", IMAGES / "photo.jpg"])
            page.get_by_role("button", name="Remove all").click()
            expect(page.get_by_text("Drop or paste images here")).to_be_visible()
        assert_fits(page, size)
        assert violations(page) == []


def test_page_waits_for_a_model_that_loads(browser: Browser, tmp_path: Path) -> None:
    repository, release = tmp_path / "repository", tmp_path / "arrived"
    shutil.copytree(SCAFFOLD / "text_classification", repository / "slow")
    code = repository / "slow" / "model.py"
    wait_for_release = f"import pathlib, time\nwhile not pathlib.Path({str(release)!r}).exists(): time.sleep(0.05)\n"
    code.write_text(f"{wait_for_release}{code.read_text()}")
    only_http = ("--no-grpc", "--no-tensorflow-serving")
    with run_server("--model-repository", str(repository), "--allow-code", *only_http) as server:
        wait_until(lambda: listening_port(server.process.pid) is not None)
        address = f"http://127.0.0.1:{listening_port(server.process.pid)}"
        with httpx.Client(transport=httpx.HTTPTransport(retries=10), timeout=60) as client:
            assert client.get(f"{address}/health", timeout=60).status_code == 200
        with open_page(browser, f"{address}/#try") as page:
            expect(page.get_by_role("alert")).to_contain_text("No model is ready")
            release.touch()
            expect(page.get_by_role("button", name="Run")).to_be_visible()
            expect(page.get_by_role("alert")).to_be_hidden()
        assert server.stop() == 0
