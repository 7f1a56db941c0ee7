"""Disagreements in the page's view Recorded: images that a shadow version answers in another way."""

import json
from pathlib import Path

import httpx
import numpy as np
from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, assert_fits, open_page
from tests.browser.try_view import infer
from tests.support.data.images import encode_image
from tests.support.models.model_folders import write_model
from tests.support.servers.server_process import run_server

CODE = """
class Model:
    def predict(self, image):
        score = 0.9 if image[0, 0, {channel}] > 127 else 0.2
        return {{"cat": score, "dog": 1 - score}}
"""


def test_different_answers_of_a_loaded_shadow_version_are_listed(browser: Browser, tmp_path: Path) -> None:
    task, folder = "IMAGE_CLASSIFICATION", tmp_path / "models" / "m"
    write_model(folder / "1", CODE.format(channel=0), task_type=task)
    write_model(folder / "2", CODE.format(channel=1), task_type=task)
    (folder / "model-settings.json").write_text(json.dumps({"versions": ["1"]}))
    options = ("--allow-code", "--record", str(tmp_path / "store.db"), "--record-images", str(tmp_path / "images"))
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:, :, 0] = 255
    with (
        run_server("--model-repository", str(tmp_path / "models"), *options) as server,
        open_page(browser, f"{server.address}/#shadow") as page,
    ):
        expect(page.get_by_role("heading", name="Inferences")).to_be_visible()
        expect(page.get_by_role("heading", name="Disagreements")).to_be_hidden()
        write_model(folder / "1", CODE.format(channel=0), task_type=task, shadow={"version": "2", "share": 1})
        httpx.post(f"{server.address}/v2/repository/models/m/load", timeout=60).raise_for_status()
        page.get_by_role("heading", name="Disagreements").click()
        expect(page.get_by_text("The latest 0 images with different answers")).to_be_visible()
        infer(server.address, "m", encode_image(pixels))
        expect(page.get_by_text("The latest 1 image with different answers")).to_be_visible()
        cells = page.get_by_role("table", name="Different answers").locator("tbody td").all_inner_texts()
        assert cells[1:4] == ["m", "1: cat 0.90", "2: dog 0.80"]
        for size in (DESKTOP, PHONE):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert violations(page) == []
            assert_fits(page, size)
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("dialog").get_by_role("button", name="cat 90.0 %")).to_be_visible()
