"""Serve the page."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec
from litestar import Response, get, post
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.models.memory import resident_bytes
from app.core.hooks import Host, Parts, View
from app.core.observers.metrics import usage_of_models
from app.core.plugins import registry
from app.core.protocols.http_inference import read_body
from app.core.protocols.protocol import HttpRequest
from app.core.server.auth.bind_policy import is_loopback_host
from app.core.server.auth.http_access import HttpAccess, requires
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
    page = WebPage(
        host.engine,
        host.metrics,
        ports=lambda: _ports(host),
        chariot_protocol=host.settings.chariot_protocol,
        guide=guide_folder(),
        views=host.views,
        access=host.access,
    )
    handlers = [*described.handlers, *page.parts.handlers]
    return msgspec.structs.replace(page.parts, handlers=handlers, operations=described.operations)


@dataclass(eq=False)
class WebPage:
    """Provide the routes of the page.

    Args:
        metrics: the metrics of the server, with the use of each model.
        ports: returns the other ports by the name of their protocol, without disabled protocols.
        chariot_protocol: the Chariot protocol that is served on Chariot's paths.
        guide: folder of the built documentation; None without one.
        views: the views of other plugins by id, with the function that returns ``/page/<id>.json``, if there is one.
    """

    engine: Engine
    metrics: CollectorRegistry = field(default_factory=CollectorRegistry)
    _: KW_ONLY
    ports: Callable[[], Mapping[str, int]] = dict[str, int]
    chariot_protocol: str = "chariot-v2-kserve"
    guide: Path | None = None
    views: Mapping[str, Callable[[], object] | None] = field(default_factory=dict[str, Callable[[], object] | None])
    access: HttpAccess = field(default_factory=lambda: HttpAccess(None))

    def __post_init__(self) -> None:
        self._pages = [plugin.page for plugin in registry().loaded.values() if plugin.page is not None]
        self._files = read_files(self._pages)

    @property
    def parts(self) -> Parts:
        """Return what the page adds to a server."""
        return Parts(handlers=self._handlers, home=lambda request: file_response(self._shell, request))

    @cached_property
    def _shown(self) -> Sequence[View]:
        """Return the shown views. All plugins have started at the first request, so that their views are known."""
        own, everything = registry().loaded["page"].page, [view for page in self._pages for view in page.views]
        known = {view.id for view in (own.views if own else ())} | self.views.keys()
        known |= {view.within for view in everything if view.id in known}
        return [view for view in everything if view.id in known]

    @cached_property
    def _shell(self) -> PageFile:
        requests = {protocol: file for page in self._pages for protocol, file in page.requests.items()}
        parts = [part for page in self._pages for part in page.parts.items()]
        return render_shell(self._shown, requests, parts)

    @property
    def _handlers(self) -> list[HTTPRouteHandler]:
        """Return the handlers of all paths except ``/``, which also serves other clients."""
        files, engine = self._files, self.engine

        @get("/page/{name:str}", sync_to_thread=False, opt=requires("read"))
        def show_file(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["name"]
            # The data of a view is a file such as drift.json.
            if name.endswith(".json") and (read := self.views.get(name.removesuffix(".json"))):
                return Response(msgspec.json.encode(read()), media_type="application/json", headers=HEADERS)
            file = files.get(name)
            if file is None:
                raise NotFoundException
            return file_response(file, request)

        @get("/page/models.json", sync_to_thread=True, opt=requires("read"))
        def show_catalogue(request: HttpRequest) -> Response[bytes]:
            engine.batched_observers.flush()
            catalogue = Catalogue(
                requires_credentials=self.access.requires_credentials,
                admin=self.access.allows(request.scope, "admin"),
                chariot_protocol=self.chariot_protocol,
                ports=self.ports(),
                samples=samples(),
                memory=resident_bytes(),
                usage=usage_of_models(self.metrics),
                models=describe_models(engine.registry),
            )
            return Response(msgspec.json.encode(catalogue), media_type="application/json", headers=HEADERS)

        @get("/page/samples/{name:str}", sync_to_thread=True, opt=requires("read"))
        def show_sample(request: HttpRequest) -> Response[bytes]:
            file = read_sample(request.path_params["name"])
            if file is None:
                raise NotFoundException
            return file_response(file, request)

        return [show_file, show_catalogue, show_sample, preview_handler(engine), guide_handler(self.guide)]


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
