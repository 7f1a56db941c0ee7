"""Read the results of the page's view Try, and ask the server for the same."""

import math
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Locator, Page, expect

from tests.browser.looking import wait_for_promise
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"
SHAPES = (Path(__file__).parent / "shapes.js").read_text().rstrip().removesuffix(";")


def infer(server: str, model: str, image: bytes, **parameters: object) -> list[dict[str, Any]]:
    """Return the records of one image."""
    body = {"inputs": [image_input(encode_base64(image))], "parameters": parameters}
    response = httpx.post(f"{server}/v2/models/m-{model}/infer", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]["data"][0]


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Results").locator("ol.records li")


_GIVE = """([event, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "image/jpeg" }));
  const options = { bubbles: true, cancelable: true, clipboardData: transfer, dataTransfer: transfer };
  const Kind = event === "paste" ? ClipboardEvent : DragEvent;
  document.querySelector("main").dispatchEvent(new Kind(event, options));
}"""


def give_file(page: Page, event: str, name: str, image: str) -> None:
    """Drop or paste one of the fixture images as a file with another name."""
    page.evaluate(_GIVE, [event, name, encode_base64((IMAGES / image).read_bytes())])


# Images are decoded only after `window.release()`.
HELD_IMAGES = """(() => {
  const decode = window.createImageBitmap;
  const released = new Promise((resolve) => (window.release = resolve));
  window.createImageBitmap = async (...all) => {
    await released;
    return decode(...all);
  };
})()"""

# The stage appears with its first image. Layers get their size after it, and are drawn in the next frame.
DRAWN = """async () => {
  const layers = [...document.querySelectorAll(".stage canvas")].filter((layer) => layer.offsetParent !== null);
  if (!layers.length || layers.some((layer) => !layer.width || !layer.height)) return false;
  const frame = () => new Promise(requestAnimationFrame);
  const size = () => layers.map((layer) => [layer.width, layer.height]).join();
  const before = size();
  await frame();
  await frame();
  return size() === before;
}"""


def expect_drawn(page: Page) -> None:
    """Wait until the layers of all images have their size and are drawn."""
    wait_for_promise(page, DRAWN)


def expect_findings(page: Page, number: int) -> None:
    """Wait until this number of findings is listed and drawn."""
    expect(rows(page)).to_have_count(number)
    expect_drawn(page)


def download(page: Page, name: str) -> bytes:
    with page.expect_download() as waiting:
        page.get_by_role("group", name="Download").get_by_role("button", name=name).click()
    return waiting.value.path().read_bytes()


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
    expect_drawn(page)
    # The list of results may come before the shapes.
    are_drawn = "result.checked > 0 && result.missing.length <= 0.02 * result.checked && result"
    result = wait_for_promise(page, f"expected => ({SHAPES})(expected).then(result => {are_drawn})", expected)
    assert result["checked"] > 40
    # A shape may cover the edge of another.
    assert len(result["missing"]) <= 0.02 * result["checked"]
    assert result["farthest"] < 1


# Whether all canvases of a selector are drawn: their centres are opaque. Chromium warns about repeated reads of a
# canvas, so this reads a copy.
ARE_OPAQUE = """selector => {
  const canvases = [...document.querySelectorAll(selector)];
  return canvases.length > 0 && canvases.every((canvas) => {
    if (!canvas.width || !canvas.height) return false;
    const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, -canvas.width / 2, -canvas.height / 2);
    return copy.getImageData(0, 0, 1, 1).data[3] === 255;
  });
}"""

PIXEL = """([name, x, y]) => {
  const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  copy.drawImage(document.querySelector(`canvas.${name}`), -x, -y);
  return [...copy.getImageData(0, 0, 1, 1).data];
}"""


def pixel(page: Page, canvas: str, x: float, y: float) -> list[int]:
    """Return red, green, blue and opacity at a point of the layer "image", "shapes" or "highlight"."""
    expect_drawn(page)
    return page.evaluate(PIXEL, [canvas, round(x), round(y)])
