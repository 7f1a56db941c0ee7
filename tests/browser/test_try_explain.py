"""Explanations in the page's view Try: the button on each result, and the map over the image."""

import base64
import io
import re
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, Response, expect

from tests.browser.axe import violations
from tests.browser.looking import PHONE, assert_fits, open_page
from tests.browser.try_view import IMAGES, expect_findings
from tests.support.data.images import encode_base64

SCENE = IMAGES / "scene.jpg"


def is_explain_response(response: Response) -> bool:
    return response.url.endswith(":explain")


def save_png(page: Page) -> Image.Image:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save as PNG").click()
    return Image.open(waiting.value.path()).convert("RGB")


def hold_explanation(page: Page) -> None:
    """Press the focused button, and leave its request without an answer."""
    url = re.compile(":explain$")
    page.route(url, lambda route: None, times=1)
    with page.expect_request(url):
        page.keyboard.press("Enter")


def use_occlusion(page: Page) -> None:
    """Choose the quickest settings; the panel is open."""
    page.get_by_text("Settings").click()
    page.get_by_label("Method").select_option("occlusion")
    page.get_by_label("Grid").fill("4")


def test_displayed_map_equals_the_map_of_the_answer(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect_findings(page, 5)
        page.get_by_role("button", name="Explain purple star").focus()
        hold_explanation(page)
        panel = page.get_by_role("region", name="Explanation")
        page.get_by_role("button", name="Stop").press("Enter")
        use_occlusion(page)
        with page.expect_response(is_explain_response) as waiting:
            page.get_by_role("button", name="Explain again").click()
        sent: Any = waiting.value.request.post_data_json
        answer = waiting.value.json()
        assert sent["instances"] == [{"b64": encode_base64(SCENE.read_bytes())}]
        assert sent["parameters"] == {"method": "occlusion", "grid": 4, "seed": 0, "max_objects": 100}
        expect(panel).to_contain_text("Occlusion, ")
        slider = page.get_by_label("Opacity of the map")
        slider.press("End")
        expect(page.get_by_text("100 %", exact=True)).to_be_visible()
        image = save_png(page)
        assert image.size == (640, 480)
        # Compare the map away from the box and its name. The colour map inferno is light where the map is high.
        light = np.asarray(image.convert("L"), dtype=np.float64)
        (explanation,) = (found for found in answer["explanations"][0] if found["label"] == "purple star")
        png = base64.b64decode(explanation["saliency"]["png"])
        map_ = np.asarray(Image.open(io.BytesIO(png)).convert("L"), dtype=np.float64)
        record = answer["predictions"][0][explanation["index"]]
        compared = np.ones(map_.shape, dtype=bool)
        left, top, right, bottom = (int(record[key]) for key in ("xmin", "ymin", "xmax", "ymax"))
        compared[max(0, top - 30) : bottom + 8, max(0, left - 8) : right + 140] = False
        assert np.corrcoef(light[compared], map_[compared])[0, 1] > 0.95
        slider.press("Home")
        expect(page.get_by_text("0 %", exact=True)).to_be_visible()
        plain = np.asarray(Image.open(SCENE).convert("L"), dtype=np.float64)
        assert abs(np.asarray(save_png(page).convert("L"), dtype=np.float64) - plain)[compared].mean() < 2
        # The answer has all objects.
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url) if request.method == "POST" else None)
        page.get_by_role("button", name="Explain blue square").focus()
        page.keyboard.press("Enter")
        expect(panel.get_by_role("heading")).to_have_text("Why blue square")
        expect(panel).to_contain_text("Occlusion, ")
        assert requests == []
        page.get_by_role("button", name="Sample shape.jpg").click()
        expect(panel).to_be_hidden()


def test_class_is_explained_on_a_phone(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=classifier&sample=shape.jpg", size=PHONE) as page:
        expect_findings(page, 20)
        with page.expect_response(is_explain_response) as waiting:
            page.get_by_role("button", name="Explain blue star").click()
        assert [found["label"] for found in waiting.value.json()["explanations"][0]] == ["blue star"]
        expect(page.get_by_text("RISE, 400 masked copies")).to_be_visible()
        use_occlusion(page)
        assert violations(page) == []
        assert_fits(page, PHONE)


def test_explanation_is_stopped_and_rejections_are_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=segmenter&sample=scene.jpg", expect_errors=True) as page:
        expect_findings(page, 5)
        page.get_by_role("button", name=re.compile("Explain")).first.focus()
        hold_explanation(page)
        page.get_by_role("button", name="Stop").press("Enter")
        expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
        page.get_by_text("Settings").click()
        page.get_by_role("spinbutton", name="Samples").fill("99999")
        page.get_by_role("button", name="Explain again").click()
        expect(page.get_by_role("alert")).to_contain_text("parameters.samples: Expected")
        expect(page.get_by_role("button", name="Save as PNG")).to_be_hidden()
        page.get_by_text("More", exact=True).click()
        page.get_by_label("Simplify contours").fill("-1")
        page.get_by_label("Simplify contours").press("Enter")
        expect(page.get_by_role("alert").filter(has_text="epsilon")).to_be_visible()
