"""Previews of images that a browser cannot show."""

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import numpy as np
import PIL.Image
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.plugins.page.page import MAX_SIDE, PREVIEW_PATH
from tasks.inference.limits import Limits
from tests.plugins.page.pages import app_of_page


@pytest.fixture(scope="module")
def app() -> Litestar:
    return app_of_page(limits=Limits(max_pixels=5_000_000))


@pytest.fixture(scope="module")
def client(app: Litestar) -> Any:
    return TestClient(app)


def tiff(width: int, height: int, orientation: int = 1) -> bytes:
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    PIL.Image.new("RGB", (width, height), (200, 100, 50)).save(file, "TIFF", compression="tiff_lzw", exif=exif)
    return file.getvalue()


def shown(response: Any) -> PIL.Image.Image:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "image/jpeg"
    return PIL.Image.open(io.BytesIO(response.content))


def test_preview_has_the_colours_and_the_upright_size_of_the_image(client: Any) -> None:
    response = client.post(PREVIEW_PATH, content=tiff(40, 30, orientation=6))
    assert response.headers["image-size"] == "30x40"
    image = shown(response)
    assert image.size == (30, 40)
    assert np.abs(np.asarray(image, int).reshape(-1, 3) - (200, 100, 50)).max() < 6


def test_preview_of_a_large_image_is_smaller(client: Any) -> None:
    response = client.post(PREVIEW_PATH, content=tiff(2 * MAX_SIDE, 100))
    assert response.headers["image-size"] == f"{2 * MAX_SIDE}x100"
    assert shown(response).size == (MAX_SIDE, 50)


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"plain text", 400, "Expected an encoded image (JPEG, PNG,"),
        (b"", 400, "got no bytes"),
        (tiff(3000, 3000), 413, "at most 5,000,000 pixels"),
        (tiff(40, 30)[:150], 400, ""),
    ],
    ids=["text", "empty", "large", "truncated"],
)
def test_file_that_is_no_acceptable_image_is_rejected(client: Any, content: bytes, status: int, message: str) -> None:
    response = client.post(PREVIEW_PATH, content=content)
    assert response.status_code == status
    assert message in response.json()["error"]


def test_slow_upload_does_not_delay_other_previews(app: Litestar) -> None:
    async def run() -> int:
        first_part_sent, finished = asyncio.Event(), asyncio.Event()

        async def slow_body() -> AsyncIterator[bytes]:
            yield b"a part"
            first_part_sent.set()
            await finished.wait()

        transport = httpx.ASGITransport(cast("Any", app))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            slow = asyncio.create_task(client.post(PREVIEW_PATH, content=slow_body()))
            await first_part_sent.wait()
            response = await client.post(PREVIEW_PATH, content=tiff(40, 30))
            finished.set()
            await slow
        return response.status_code

    assert asyncio.run(asyncio.wait_for(run(), 60)) == 200
