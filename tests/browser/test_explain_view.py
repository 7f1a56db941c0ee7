"""The page's explain view: its requests, and the map over the image."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Response, expect

from tests.browser.looking import open_page
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT, run_server

MODELS = ROOT / "fixtures" / "models"
SCENE = ROOT / "fixtures" / "images" / "scene.jpg"
QUICK = "method=occlusion&grid=4"

pytestmark = pytest.mark.slow


def is_explain_response(response: Response) -> bool:
    return response.url.endswith(":explain")


def save_png(page: Page) -> Image.Image:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save as PNG").click()
    return Image.open(waiting.value.path()).convert("RGB")


def map_pixels(answer: dict[str, Any], index: int) -> Any:
    png = base64.b64decode(answer["explanations"][0][index]["saliency"]["png"])
    return np.asarray(Image.open(io.BytesIO(png)).convert("L"))


def test_displayed_map_equals_the_map_of_the_answer(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#explain?model=detector") as page:
        page.get_by_role("button", name="scene.jpg").click()
        expect(page.get_by_text("scene.jpg, 640 \u00d7 480")).to_be_visible()
        page.get_by_label("Method").select_option("occlusion")
        page.get_by_label("Grid").fill("4")
        with page.expect_response(is_explain_response) as waiting:
            page.get_by_role("button", name="Explain", exact=True).click()
        sent: Any = waiting.value.request.post_data_json
        answer = waiting.value.json()
        assert sent["instances"] == [{"b64": encode_base64(SCENE.read_bytes())}]
        assert sent["parameters"] == {"method": "occlusion", "grid": 4, "seed": 0}
        explanations = answer["explanations"][0]
        choices = page.get_by_role("radio")
        expect(choices).to_have_count(len(explanations))
        labels = page.get_by_role("radiogroup").locator("label").all_inner_texts()
        assert [label.split("\n")[0] for label in labels] == [explanation["label"] for explanation in explanations]
        choices.nth(1).check()
        slider = page.get_by_label("Opacity of the map")
        slider.press("End")
        expect(page.get_by_text("100 %", exact=True)).to_be_visible()
        image = save_png(page)
        assert image.size == (640, 480)
        # Compare the map away from the box and its name. The colour map inferno is light where the map is high.
        light = np.asarray(image.convert("L"), dtype=np.float64)
        map_ = map_pixels(answer, 1).astype(np.float64)
        record = answer["predictions"][0][explanations[1]["index"]]
        compared = np.ones(map_.shape, dtype=bool)
        left, top, right, bottom = (int(record[key]) for key in ("xmin", "ymin", "xmax", "ymax"))
        compared[max(0, top - 30) : bottom + 8, max(0, left - 8) : right + 140] = False
        assert np.corrcoef(light[compared], map_[compared])[0, 1] > 0.95
        slider.press("Home")
        expect(page.get_by_text("0 %", exact=True)).to_be_visible()
        plain = np.asarray(Image.open(SCENE).convert("L"), dtype=np.float64)
        assert abs(np.asarray(save_png(page).convert("L"), dtype=np.float64) - plain)[compared].mean() < 2


def test_url_with_an_image_is_explained_at_once(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#explain?model=classifier&image=shape.jpg&{QUICK}") as page:
        expect(page.get_by_role("radio")).to_have_count(1)
        expect(page.get_by_text("1 result explained")).to_be_visible()
        expect(page).to_have_url(re.compile("model=classifier&image=shape.jpg"))


def test_explain_view_works_by_keyboard(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#explain?model=detector&image=scene.jpg&{QUICK}") as page:
        first = page.get_by_role("radio", name="yellow circle")
        expect(first).to_be_checked()
        page.get_by_role("button", name="Explain", exact=True).focus()
        page.keyboard.press("Tab")
        expect(first).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(page.get_by_role("radio", name="purple star")).to_be_checked()
        page.keyboard.press("Tab")
        expect(page.get_by_label("Opacity of the map")).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_text("61 %", exact=True)).to_be_visible()


def test_long_explanation_is_stopped(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#explain?model=segmenter&image=scene.jpg&samples=2000&grid=32") as page:
        stop = page.get_by_role("button", name="Stop")
        stop.click()
        expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Explain", exact=True)).to_be_focused()


def test_occlusion_ignores_an_invalid_number_of_samples(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#explain?model=classifier") as page:
        expect(page.get_by_text("shape.jpg, ")).to_be_visible()
        page.get_by_role("spinbutton", name="Samples").fill("0")
        page.get_by_label("Method").select_option("occlusion")
        page.get_by_role("button", name="Explain", exact=True).click()
        expect(page.get_by_text("1 result explained")).to_be_visible()


def test_rejected_request_shows_an_error(browser: Browser, server: str, tmp_path: Path) -> None:
    url = f"{server}/#explain?model=detector&image=scene.jpg&samples=99999"
    with open_page(browser, url, expect_errors=True) as page:
        expect(page.get_by_role("alert")).to_contain_text("parameters.samples: Expected")
        (tmp_path / "not.jpg").write_bytes(b"no picture")
        page.locator("input[type=file]").set_input_files(tmp_path / "not.jpg")
        expect(page.get_by_role("alert")).to_contain_text("not.jpg is not an image. Supported: JPEG")


def test_unknown_model_is_reported(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#explain?model=lost&image=scene.jpg&{QUICK}") as page:
        expect(page.get_by_text("scene.jpg, 640 \u00d7 480")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("lost cannot be used here. Choose a ready model for")
        expect(page.get_by_role("radio")).to_have_count(0)


def test_image_without_findings_is_reported(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#explain?model=detector&image=photo.jpg&{QUICK}") as page:
        expect(page.get_by_text("so there is nothing to explain").first).to_be_visible()
        expect(page.get_by_role("button", name="Save as PNG")).to_be_hidden()


def test_server_without_explainable_models_is_reported(browser: Browser) -> None:
    with (
        run_server("--model", str(MODELS / "half_plus_two")) as process,
        open_page(browser, f"{process.address}/#explain") as page,
    ):
        expect(page.get_by_text("No model can be explained")).to_be_visible()
