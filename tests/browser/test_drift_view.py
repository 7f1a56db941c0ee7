"""Drift in the page's view Recorded: windows and their verdicts for a model whose images turn dark."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import cv2
import httpx
import numpy as np
from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, assert_fits, open_page
from tests.browser.try_view import IMAGES, MODELS, infer
from tests.support.command_line import output_of
from tests.support.servers.server_process import run_server

WINDOW = 30


def make_images(seed: int, number: int, light: float) -> Iterator[bytes]:
    """Yield crops of a scene with slightly different brightness."""
    random = np.random.default_rng(seed)
    scene = cv2.imread(str(IMAGES / "scene.jpg"))
    assert scene is not None
    for _ in range(number):
        side = int(random.integers(240, 420))
        top, left = int(random.integers(480 - side)), int(random.integers(640 - side))
        crop = scene[top : top + side, left : left + side] * (light * random.uniform(0.9, 1.1))
        yield cv2.imencode(".jpg", np.clip(crop, 0, 255).astype(np.uint8))[1].tobytes()


def test_windows_are_shown_with_their_verdicts(browser: Browser, tmp_path: Path) -> None:
    model, images = tmp_path / "models" / "detector", tmp_path / "images"
    shutil.copytree(MODELS / "detector", model)
    images.mkdir()
    for index, image in enumerate(make_images(1, 40, 1.0)):
        (images / f"{index}.jpg").write_bytes(image)
    output_of("drift", "baseline", images, "--model", model, "--out", model / "drift-baseline.npz")
    options = ("--drift", "--drift-window", str(WINDOW), "--drift-per-second", "1000")
    with (
        run_server("--model-repository", str(tmp_path / "models"), *options) as server,
        open_page(browser, f"{server.address}/#drift") as page,
    ):
        page.get_by_role("heading", name="Drift").click()
        expect(page.get_by_text("No window is complete yet")).to_be_visible()
        for seed, light, text in ((2, 1.0, "No drift in 1 model"), (3, 0.4, "Drifted: detector")):
            for image in make_images(seed, WINDOW, light):
                infer(server.address, "detector", image)
            expect(page.get_by_text(text)).to_be_visible()
        rows = page.get_by_role("table", name="Windows of detector").locator("tbody tr")
        windows = httpx.get(f"{server.address}/page/drift.json", timeout=60).json()["detector"]
        expect(rows).to_have_count(2)
        for row, window in zip(rows.all(), windows[::-1], strict=True):
            cells = row.locator("td").all_inner_texts()
            verdict = "drifted" if window["drifted"] else "no drift"
            similarities = [f"{window[name]:.3f}" for name in ("similarity", "baseline_similarity")]
            assert cells[:4] == [verdict, str(WINDOW), *similarities]
            assert len(cells) == 4 + len(window["tests"])
        expect(page.get_by_role("region", name="Recorded inferences")).to_have_count(0)
        for size in (DESKTOP, PHONE):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert violations(page) == []
            assert_fits(page, size)
