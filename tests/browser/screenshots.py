"""Take the screenshots of the documentation, and of every view for people who review the page: `make screenshots`."""

import io
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import httpx
import PIL.Image
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import chromium
from tests.browser.looking import Scheme, Size, open_page
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT, run_server

_SIZE = (1280, 720)
_COLOURS = 128
_DOCS = ROOT / "docs"
_REVIEW = ROOT / "build" / "screenshots"
_SCENE = ROOT / "fixtures" / "images" / "scene.jpg"
_SIZES: Mapping[str, Size] = {"desktop": (1600, 900), "tablet": (1024, 768), "phone": (390, 844)}
_SCHEMES: tuple[Scheme, ...] = ("light", "dark")
_VIEWS = {
    "try": "#try?model=detector",
    "code": "#request?model=detector",
    "models": "#models",
    "recorded": "#recorded",
}


def _write(screenshot: bytes, path: Path) -> None:
    """Write a screenshot with few colours, which keeps the file small."""
    with PIL.Image.open(io.BytesIO(screenshot)) as image:
        image.convert("RGB").quantize(_COLOURS).save(path, optimize=True)
    sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB\n")


def _send_traffic(address: str) -> None:
    metadata = [{"key": "camera", "type": "str", "value": "north"}]
    body = {"inputs": [image_input(encode_base64(_SCENE.read_bytes()), metadata=metadata)]}
    for model in ("detector", "segmenter", "classifier") * 20:
        httpx.post(f"{address}/v2/models/m-{model}/infer", json=body, timeout=60).raise_for_status()


def _open_view(page: Page, view: str) -> None:
    """Wait until a view shows its contents. Where requests are recorded, Try waits for a click."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    if view == "try":
        page.get_by_role("button", name="Sample scene.jpg").click()
        expect(page.get_by_role("region", name="Results").get_by_role("listitem")).to_have_count(5)
    elif view == "code":
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("group", name="Response")).to_contain_text("outputs")
    elif view == "recorded":
        expect(page.get_by_text("found, newest first")).to_be_visible()
        page.wait_for_load_state("networkidle")
    else:
        expect(page.get_by_role("rowgroup", name="detector", exact=True)).to_be_visible()


def _take_views(browser: Browser, address: str) -> None:
    _REVIEW.mkdir(parents=True, exist_ok=True)
    for (view, fragment), (size_name, size), scheme in product(_VIEWS.items(), _SIZES.items(), _SCHEMES):
        with open_page(browser, f"{address}/{fragment}", size=size, scheme=scheme) as page:
            _open_view(page, view)
            _write(page.screenshot(full_page=view != "recorded"), _REVIEW / f"{view}-{size_name}-{scheme}.png")


def main() -> None:
    """Write the images of `docs`, and four views in three sizes and two schemes to `build/screenshots`."""
    drawn = ("--model", str(ROOT / "fixtures" / "models" / "face-detector"), "--draw", str(_DOCS / "detections.jpg"))
    portrait = _SCENE.with_name("portrait.jpg")
    subprocess.run([sys.executable, "-m", "app", "predict", str(portrait), *drawn], cwd=ROOT, check=True)
    with (
        run_server("--demo") as server,
        chromium() as browser,
        open_page(browser, server.address, size=_SIZE) as page,
    ):
        expect(page.get_by_role("region", name="Results").get_by_role("listitem")).to_have_count(1)
        page.wait_for_load_state("networkidle")
        _write(page.screenshot(), _DOCS / "page.png")
    with (
        tempfile.TemporaryDirectory() as folder,
        run_server("--demo", "--record", f"{folder}/recorded.db", "--record-images", f"{folder}/images") as server,
        chromium() as browser,
    ):
        _send_traffic(server.address)
        _take_views(browser, server.address)


if __name__ == "__main__":
    main()
