"""Take the screenshots of the documentation: `make screenshots`."""

import io
import sys
from pathlib import Path

import httpx
import PIL.Image
from playwright.sync_api import expect

from tests.browser.chromium import chromium
from tests.browser.looking import open_page
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT, run_server

_SIZE = (1280, 720)
_COLOURS = 128
_DOCS = ROOT / "docs"
_SCENE = ROOT / "fixtures" / "images" / "scene.jpg"


def _write(screenshot: bytes, path: Path) -> None:
    """Write a screenshot with few colours, which keeps the file small."""
    with PIL.Image.open(io.BytesIO(screenshot)) as image:
        image.convert("RGB").quantize(_COLOURS).save(path, optimize=True)
    sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB\n")


def main() -> None:
    """Write `docs/page.png` and `docs/metrics.png`."""
    with run_server("--demo") as server, chromium() as browser:
        with open_page(browser, server.address, size=_SIZE) as page:
            expect(page.get_by_role("region", name="Results").get_by_role("listitem")).to_have_count(5)
            page.wait_for_load_state("networkidle")
            _write(page.screenshot(), _DOCS / "page.png")
        body = {"inputs": [image_input(encode_base64(_SCENE.read_bytes()))]}
        for model in ("detector", "segmenter", "classifier") * 20:
            httpx.post(f"{server.address}/v2/models/m-{model}/infer", json=body, timeout=60).raise_for_status()
        with open_page(browser, f"{server.address}/#metrics?model=detector", size=_SIZE) as page:
            expect(page.get_by_role("status")).to_have_text("Live")
            expect(page.get_by_role("heading", level=2, name="detector")).to_be_visible()
            _write(page.screenshot(full_page=True), _DOCS / "metrics.png")


if __name__ == "__main__":
    main()
