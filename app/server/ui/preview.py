"""Convert images that a browser cannot show, such as TIFF."""

import asyncio

import msgspec
from litestar import Response, post
from litestar.handlers import HTTPRouteHandler

from app.engine.engine import Engine
from app.protocols.http_inference import read_body
from app.protocols.protocol import HttpRequest, json_response
from app.protocols.status import http_status
from app.server.auth.http_access import requires
from app.server.ui.page_files import HEADERS
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.vision.image import decode_image, small_jpeg
from tasks.vision.request import PixelBudget

PREVIEW_PATH = "/page/preview"

MAX_SIDE = 2048
"""Maximum width and height of a preview in pixels."""


def make_preview(data: bytes, limits: Limits) -> tuple[bytes, int, int]:
    """Return an encoded image as an upright JPEG, with the width and height of the upright original in pixels.

    Raises:
        InferenceError: as for the image of an inference request.
    """
    PixelBudget(limits).admit(data)
    pixels = decode_image(data).pixels
    height, width = pixels.shape[:2]
    return small_jpeg(pixels, MAX_SIDE), width, height


def preview_handler(engine: Engine) -> HTTPRouteHandler:
    """Return the handler that converts the image in the body of a request."""
    # Decode one image at a time: previews must not take the processors from inferences.
    turn = asyncio.Semaphore(1)

    @post(PREVIEW_PATH, status_code=200, opt=requires("infer"))
    async def show_preview(request: HttpRequest) -> Response[bytes]:
        try:
            async with turn:
                content, width, height = await asyncio.to_thread(
                    make_preview, await read_body(request, engine), engine.limits
                )
        except InferenceError as error:
            return json_response(_error_body(error), http_status(error.kind))
        headers = {**HEADERS, "Image-Size": f"{width}x{height}"}
        return Response(content, media_type="image/jpeg", headers=headers)

    return show_preview


def _error_body(error: InferenceError) -> bytes:
    return msgspec.json.encode({"error": error.message})
