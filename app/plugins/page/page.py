"""Serve the page: its routes, and the collection of its metrics."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from litestar import Response, asgi, get, post
from litestar.exceptions import NotFoundException
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler

from app.core.engine.engine import Engine
from app.core.engine.models.memory import resident_bytes
from app.core.hooks import Host, Parts, View
from app.core.plugins import registry
from app.core.protocols.http_inference import read_body
from app.core.protocols.protocol import HttpRequest
from app.core.server.auth.bind_policy import is_loopback_host
from app.core.server.auth.http_access import HttpAccess, requires
from app.core.server.http.compression import UNCOMPRESSED
from app.core.server.process_setup import running
from app.plugins.page.admin_api import AdminApi
from app.plugins.page.catalogue import Catalogue, describe_models, model_usage
from app.plugins.page.event_stream import EventStream
from app.plugins.page.guide import guide_folder, guide_handler
from app.plugins.page.page_files import (
    HEADERS,
    PageFile,
    file_response,
    read_files,
    read_sample,
    render_shell,
    samples,
    wants_html,
)
from app.plugins.page.protocol_proxy import ProtocolProxy
from app.plugins.page.reference import REFERENCE_OPERATION, reference_handler
from app.plugins.page.request_history import Readings
from app.plugins.page.series import read_series
from app.plugins.page.settings import PageSettings
from app.plugins.page.trends import Trends
from tasks.inference.limits import Limits
from tasks.vision.image import decode_image, small_jpeg
from tasks.vision.request import PixelBudget

EVENTS_PATH = "/page/events"


def start(host: Host) -> Parts:
    """Return the routes of the page, and the observer of its metrics."""
    settings, is_local = host.settings.of(PageSettings), is_loopback_host(host.settings.host)
    page = WebPage(
        host.engine,
        Trends(host.engine.registry.has_model),
        # On other addresses, a client that is not a browser can forge any Host and Origin header.
        admin=False if settings.page_admin is None and not is_local else settings.page_admin,
        proxy=ProtocolProxy(
            host.port_names, host.port, (lambda: host.grpc) if host.settings.grpc is not False else None
        ),
        chariot_protocol=host.settings.chariot_protocol,
        # On other addresses, only the metrics of GRPS are shown by default.
        full=is_local if settings.page is None else settings.page,
        guide=guide_folder(),
        views=host.views,
        access=host.access,
    )
    return page.parts


@dataclass(eq=False)
class WebPage:
    """Provide the routes of the page, including the metrics under the paths of GRPS.

    Args:
        trends: source of the metrics; one of the engine's observers.
        admin: whether the page can load and unload models; None for browsers on this machine only (`AdminApi`).
        chariot_protocol: the Chariot protocol that is served on Chariot's paths.
        full: False for only the metrics, under the paths of GRPS.
        guide: folder of the built documentation; None without one.
        views: the views of other plugins by id, with the function that returns ``/page/<id>.json``, if there is one.
    """

    engine: Engine
    trends: Trends
    admin: bool | None = None
    _: KW_ONLY
    proxy: ProtocolProxy = field(default_factory=ProtocolProxy)
    chariot_protocol: str = "chariot-v2-kserve"
    full: bool = True
    guide: Path | None = None
    views: Mapping[str, Callable[[], object] | None] = field(default_factory=dict[str, Callable[[], object] | None])
    access: HttpAccess = field(default_factory=lambda: HttpAccess(None))

    def __post_init__(self) -> None:
        self.event_stream = EventStream(self.engine, self.trends)
        self._admin_api = AdminApi(self.engine.repository, self.admin, self.access)
        self._pages = [plugin.page for plugin in registry().loaded.values() if plugin.page is not None]
        self._files = read_files(self._pages)

    @property
    def parts(self) -> Parts:
        """Return what the page adds to a server."""
        return Parts(
            batched_observers=(self.trends,),
            handlers=self._handlers,
            operations=(REFERENCE_OPERATION,),
            home=self._home if self.full else None,
            costly_prefixes=("/page",),
            lifespan=self._lifespan,
            on_drain=self.event_stream.stop,
        )

    def _home(self, request: HttpRequest) -> Response[bytes] | None:
        """Return the page if the request to ``/`` comes from a browser, otherwise None."""
        return file_response(self._shell, request) if wants_html(request.headers.get("accept", "")) else None

    @cached_property
    def _shown(self) -> Sequence[View]:
        """Return the shown views. All plugins have started at the first request, so that their views are known."""
        if not self.full:
            return [view for view in _own_views() if view.id == "metrics"]
        own, everything = _own_views(), [view for page in self._pages for view in page.views]
        known = {view.id for view in own} | self.views.keys()
        known |= {view.within for view in everything if view.id in known}
        return [view for view in everything if view.id in known]

    @cached_property
    def _shell(self) -> PageFile:
        return self._render_shell("", "try")

    @cached_property
    def _grps_shell(self) -> PageFile:
        return self._render_shell("../../../", "metrics")

    def _render_shell(self, root: str, initial_view: str) -> PageFile:
        requests = {protocol: file for page in self._pages for protocol, file in page.requests.items()}
        parts = [part for page in self._pages for part in page.parts.items()]
        return render_shell(root, self._shown, requests, parts, initial_view=initial_view)

    def _read_view(self, name: str) -> Callable[[], object] | None:
        """Return the function that returns a file with the data of a view, such as ``drift.json``."""
        return self.views.get(name.removesuffix(".json")) if self.full and name.endswith(".json") else None

    @property
    def _handlers(self) -> list[HTTPRouteHandler | ASGIRouteHandler]:
        """Return the handlers of all paths except ``/``, which also serves other clients."""
        files, engine = self._files, self.engine

        @get("/page/{name:str}", sync_to_thread=False, opt=requires("read"))
        def show_file(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["name"]
            if read := self._read_view(name):
                return Response(msgspec.json.encode(read()), media_type="application/json", headers=HEADERS)
            file = files.get(name)
            if file is None:
                raise NotFoundException
            return file_response(file, request)

        @get("/grps/v1/monitor/metrics", sync_to_thread=False, opt=requires("read"))
        def show_page_of_grps(request: HttpRequest) -> Response[bytes]:
            return file_response(self._grps_shell, request)

        @get("/grps/v1/monitor/series", sync_to_thread=True, opt=requires("read"))
        def show_series(request: HttpRequest) -> Response[Any]:
            engine.batched_observers.flush()
            series = read_series(self.trends, request.query_params.get("name", ""))
            if series is None:
                return Response("key not found", media_type="text/html")
            return Response(msgspec.json.encode(series), media_type="application/json;charset=utf-8")

        options = {**requires("read"), UNCOMPRESSED: True}
        events = asgi(EVENTS_PATH, copy_scope=True, opt=options)(self.event_stream)
        metrics = [show_file, show_page_of_grps, show_series, events, reference_handler(), guide_handler(self.guide)]
        return (
            [*metrics, *self._view_handlers, *self._admin_api.handlers, *self.proxy.handlers] if self.full else metrics
        )

    @property
    def _view_handlers(self) -> list[HTTPRouteHandler]:
        """Return the handlers for the views other than the metrics."""

        @get("/page/models.json", sync_to_thread=True, opt=requires("read"))
        def show_catalogue() -> Response[bytes]:
            self.engine.batched_observers.flush()
            models = describe_models(self.engine.registry)
            catalogue = Catalogue(
                requires_credentials=self.access.requires_credentials,
                chariot_protocol=self.chariot_protocol,
                ports=self.proxy.ports,
                samples=samples(),
                memory=self.trends.readings.memory,
                usage={name: model_usage(self.trends, name) for name in {model.name for model in models}},
                models=models,
            )
            return Response(msgspec.json.encode(catalogue), media_type="application/json", headers=HEADERS)

        @get("/page/samples/{name:str}", sync_to_thread=True, opt=requires("read"))
        def show_sample(request: HttpRequest) -> Response[bytes]:
            file = read_sample(request.path_params["name"])
            if file is None:
                raise NotFoundException
            return file_response(file, request)

        return [show_catalogue, show_sample, preview_handler(self.engine)]

    @asynccontextmanager
    async def _lifespan(self) -> AsyncGenerator[None]:
        """While entered, sample the process metrics once a second."""
        async with running(self._sample_process()):
            try:
                yield
            finally:
                self.event_stream.stop()

    async def _sample_process(self) -> None:
        engine, clock, used = self.engine, time.monotonic(), time.process_time()
        while True:
            await asyncio.sleep(seconds_until_sample(self.trends.age))
            clock_before, used_before, clock, used = clock, used, time.monotonic(), time.process_time()
            # Processor time per second since the last reading: 1.0 is one busy core.
            cpu = (used - used_before) / max(clock - clock_before, 1e-3)
            self.trends.add_readings(
                Readings(in_flight=engine.in_flight, waiting=engine.waiting, cpu=cpu, memory=resident_bytes())
            )


def _own_views() -> Sequence[View]:
    """Return the views that the page always has."""
    own = registry().loaded["page"].page
    return () if own is None else own.views


def seconds_until_sample(age: float) -> float:
    """Return the seconds until the middle of the next second, so that timer jitter never samples a second twice."""
    return int(age) + 1.5 - age


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
