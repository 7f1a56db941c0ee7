"""A second model in the page's view Try: the objects of both, and the list of differences."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, Request, Route, expect

from tests.browser.looking import open_page
from tests.browser.try_view import ARE_OPAQUE, HELD_IMAGES, IMAGES, expect_drawn, expect_findings, infer

# Whether something is drawn within a pixel of the middle of each side of a box: (canvas, box, size of the image).
IS_DRAWN = """([side, [left, top, right, bottom], [width, height]]) => {
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
TWICE = "#try?model=detector&sample=scene.jpg&score=0.5&second=detector&second_score=0.5"


def rows(page: Page) -> list[list[str]]:
    table_rows = page.get_by_role("region", name="Differences").locator("tbody tr").all()
    return [[cell.strip() for cell in row.locator("th, td").all_inner_texts()] for row in table_rows]


def test_each_side_draws_objects_above_its_threshold(browser: Browser, server: str) -> None:
    detections = infer(server, "detector", (IMAGES / "scene.jpg").read_bytes())
    assert len(detections) == 5
    threshold = 0.97
    assert detections[1]["score"] > threshold > detections[2]["score"]
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg&score=0.3") as page:
        expect_findings(page, 5)
        page.get_by_role("button", name="Add a second model").click()
        page.get_by_role("combobox", name="Second model").select_option("detector")
        region = page.get_by_role("region", name="Differences")
        requests: list[str] = []
        expect(region.get_by_role("row", name="yellow circle")).to_be_visible()
        page.on("request", lambda request: requests.append(request.url) if request.method == "POST" else None)
        region.get_by_label("Confidence threshold").fill(str(threshold))
        expect(page.get_by_text("2 in both, 3 only first, 0 only second")).to_be_visible()
        assert requests == []
        expect(page).to_have_url(re.compile("second=detector&second_score=0.97"))
        page.reload()
        expect(page.get_by_text("2 in both, 3 only first, 0 only second")).to_be_visible()
        expect_drawn(page)
        for record in detections:
            box = [record[key] for key in ("xmin", "ymin", "xmax", "ymax")]
            assert page.evaluate(IS_DRAWN, [0, box, [640, 480]]) == [True] * 3
            assert all(page.evaluate(IS_DRAWN, [1, box, [640, 480]])) is (record["score"] >= threshold)
        assert rows(page) == [
            [
                record["label"],
                f"{100 * record['score']:.1f} %",
                f"{100 * record['score']:.1f} %" if record["score"] >= threshold else "\u2013",
                "\u00b10.0" if record["score"] >= threshold else "only first",
                "1.00" if record["score"] >= threshold else "\u2013",
            ]
            for record in detections
        ]
        region.get_by_role("button", name="Remove").click()
        expect(region).to_be_hidden()
        expect(page.locator(".stage")).to_have_count(1)


def test_a_row_highlights_both_shapes_and_only_models_of_the_same_kind_are_compared(
    browser: Browser, server: str
) -> None:
    with open_page(browser, f"{server}/{TWICE}") as page:
        expect(page.get_by_text("5 in both")).to_be_visible()
        expect_drawn(page)
        canvases = "[...document.querySelectorAll('canvas.highlight')]"
        plain = page.evaluate(f"{canvases}.map((canvas) => canvas.toDataURL())")
        page.get_by_role("region", name="Differences").get_by_role("button", name="yellow circle").focus()
        page.keyboard.press("Tab")
        expect(page.get_by_role("row", name="purple star")).to_have_class("selected")
        expect(page.get_by_role("row", name="yellow circle")).not_to_have_class("selected")
        page.wait_for_function(
            f"(plain) => {canvases}.every((canvas, at) => canvas.toDataURL() !== plain[at])", arg=plain
        )
        first, second = page.locator(".zoom").all()
        before = second.inner_text()
        page.locator(".stage").first.focus()
        page.keyboard.press("+")
        expect(second).not_to_have_text(before)
        expect(first).to_have_text(second.inner_text())
        # Classes are compared by their names, and never with boxes.
        page.goto(f"{server}/#try?model=classifier&sample=shape.jpg&score=0.05&second=classifier&second_score=0.05")
        expect(page.get_by_text("1 in both, 0 only first, 0 only second")).to_be_visible()
        assert rows(page)[0][0] == "blue star"
        expect(page.get_by_role("columnheader", name="IoU")).to_be_hidden()
        expect(page.get_by_role("combobox", name="Second model").get_by_role("option")).to_have_text(["classifier"])
        page.goto(f"{server}/#try?model=detector&second=lost")
        expect(page.get_by_role("alert")).to_contain_text("lost cannot be used here. Choose a ready model for")


def test_both_images_are_shown_if_the_answers_arrive_before_the_image_is_decoded(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        page.add_init_script(HELD_IMAGES)
        page.goto("about:blank")
        answers: list[str] = []
        page.on("response", lambda response: answers.append(response.url) if "/infer" in response.url else None)
        page.goto(f"{server}/{TWICE}")
        while len(answers) < 2:
            page.wait_for_event("response")
        page.evaluate("window.release()")
        expect(page.get_by_text("5 in both")).to_be_visible()
        expect(page.locator("canvas.image")).to_have_count(2)
        page.wait_for_function(ARE_OPAQUE, arg="canvas.image")
        expect(page.get_by_role("alert")).to_be_hidden()


LABELS_SCHEMA = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None}


@contextmanager
def open_zero_shot(browser: Browser, url: str, model: str) -> Generator[Page]:
    """Open the page at `url` as if `model` needed candidate labels, because zero-shot models need torch."""

    def describe(route: Route) -> None:
        response = route.fetch()
        catalogue = response.json()
        for entry in catalogue["models"]:
            if entry["name"] == model:
                entry["parameters"]["candidate_labels"] = LABELS_SCHEMA
        route.fulfill(response=response, json=catalogue)

    with open_page(browser, url.partition("#")[0], expect_errors=True) as page:
        page.route("**/page/models.json", describe)
        page.goto("about:blank")
        page.goto(url)
        yield page


def sent_labels(request: Request) -> tuple[str, Any]:
    """Return the model of a request in Chariot's protocol, and its candidate labels."""
    body = json.loads(request.post_data or "{}")
    parameters = {**body.get("parameters", {}), **body["inputs"][0].get("parameters", {})}
    return request.url.split("/")[-2], parameters.get("candidate_labels")


def test_second_model_gets_the_next_image_and_the_labels_it_takes(browser: Browser, server: str) -> None:
    with open_zero_shot(browser, f"{server}/#try?model=detector&sample=scene.jpg&second=segmenter", "detector") as page:
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.get_by_text("only second").first).to_be_visible()
        sent: list[tuple[str, Any]] = []
        page.on("request", lambda request: sent.append(sent_labels(request)) if request.method == "POST" else None)
        page.get_by_role("textbox", name="Candidate labels").fill("cup, spoon")
        with page.expect_response(re.compile("/m-detector/infer")):
            page.keyboard.press("Enter")
        assert sent == [("m-detector", ["cup", "spoon"])]
        sent.clear()
        with page.expect_response(re.compile("/m-segmenter/infer")):
            page.get_by_role("button", name="Sample shape.jpg").click()
        assert ("m-segmenter", None) in sent
