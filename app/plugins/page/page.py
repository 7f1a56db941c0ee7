"""Serve the page."""

import asyncio
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from litestar import Response, get, post
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler

from app.core.engine.engine import Engine
from app.core.engine.models.memory import resident_bytes
from app.core.hooks import Host, Parts
from app.core.observers.metrics import usage_of_models
from app.core.plugins import registry
from app.core.protocols.http_inference import read_body
from app.core.protocols.protocol import HttpRequest
from app.core.server.auth.bind_policy import is_loopback_host
from app.core.server.auth.http_access import requires
from app.plugins.page.catalogue import Catalogue, describe_models
from app.plugins.page.guide import guide_folder, guide_handler
from app.plugins.page.openapi.routes import describing
from app.plugins.page.page_files import (
    HEADERS,
    PageFile,
    file_response,
    read_files,
    read_sample,
    render_shell,
    samples,
)
from app.plugins.page.settings import PageSettings
from tasks.inference.limits import Limits
from tasks.vision.image import decode_image, small_jpeg
from tasks.vision.request import PixelBudget


def start(host: Host) -> Parts:
    """Return the routes of OpenAPI and of the page, which other addresses than loopback ones only have if enabled."""
    described, enabled = describing(host.engine), host.settings.of(PageSettings).page
    if not (is_loopback_host(host.settings.host) if enabled is None else enabled):
        return described
    page = page_parts(host, guide_folder())
    handlers = [*described.handlers, *page.handlers]
    return msgspec.structs.replace(page, handlers=handlers, operations=described.operations)


def page_parts(host: Host, guide: Path | None) -> Parts:
    """Return the routes of the page; `guide` is the folder of the built documentation, if there is one."""
    pages = {name: plugin.page for name, plugin in registry().loaded.items() if plugin.page is not None}
    files, engine = read_files(pages.values()), host.engine

    @get("/page/{name:str}", sync_to_thread=False, opt=requires("read"))
    def show_file(request: HttpRequest) -> Response[bytes]:
        name = request.path_params["name"]
        # The data of a view is a file such as drift.json.
        if name.endswith(".json") and (read := host.views.get(name.removesuffix(".json"))):
            return Response(msgspec.json.encode(read()), media_type="application/json", headers=HEADERS)
        file = files.get(name)
        if file is None:
            raise NotFoundException
        return file_response(file, request)

    @get("/page/models.json", sync_to_thread=True, opt=requires("read"))
    def show_catalogue(request: HttpRequest) -> Response[bytes]:
        engine.batched_observers.flush()
        catalogue = Catalogue(
            requires_credentials=host.access.requires_credentials,
            admin=host.access.allows(request.scope, "admin"),
            chariot_protocol=host.settings.chariot_protocol,
            ports=_ports(host),
            samples=samples(),
            memory=resident_bytes(),
            usage=usage_of_models(host.metrics),
            models=describe_models(engine.registry),
        )
        return Response(msgspec.json.encode(catalogue), media_type="application/json", headers=HEADERS)

    @get("/page/samples/{name:str}", sync_to_thread=True, opt=requires("read"))
    def show_sample(request: HttpRequest) -> Response[bytes]:
        file = read_sample(request.path_params["name"])
        if file is None:
            raise NotFoundException
        return file_response(file, request)

    @cache
    def shell() -> PageFile:
        # All plugins have started at the first request, so that their views are known.
        return render_shell(pages, host.views)

    handlers = (show_file, show_catalogue, show_sample, preview_handler(engine), guide_handler(guide))
    return Parts(handlers=handlers, home=lambda request: file_response(shell(), request))


def _ports(host: Host) -> Mapping[str, int]:
    """Return the other ports of the server, once it is complete."""
    grpc = {} if host.grpc is None else {"grpc": host.grpc.port}
    return grpc | {name: host.port(name).port for name in host.port_names}


PREVIEW_PATH = "/page/preview"

MAX_SIDE = 2048
"""Maximum width and height of a preview in pixels."""


def make_preview(data: bytes, limits: Limits) -> tuple[bytes, int, int]:
    """Return an encoded image as an upright JPEG, with the width and height of the upright original in pixels.

    Raise InferenceError as for the image of an inference request.
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
        body = await read_body(request, engine)
        async with turn:
            content, width, height = await asyncio.to_thread(make_preview, body, engine.limits)
        headers = {**HEADERS, "Image-Size": f"{width}x{height}"}
        return Response(content, media_type="image/jpeg", headers=headers)

    return show_preview
