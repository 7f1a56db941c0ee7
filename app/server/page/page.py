"""Serve the page: its routes, and the collection of its metrics."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Litestar, Response, asgi, get
from litestar.exceptions import NotFoundException
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler

from app.engine.engine import Engine
from app.engine.history import Readings
from app.engine.process_usage import CpuMeter, resident_bytes
from app.protocols.protocol import HttpRequest
from app.server.access.http import HttpAccess, needs
from app.server.page.catalogue import make_catalogue
from app.server.page.control import Control
from app.server.page.events import Events
from app.server.page.files import HEADERS, read_files, respond, shell, wants_html
from app.server.page.reach import Reach
from app.server.page.samples import read_sample
from app.server.page.series import read_series

if TYPE_CHECKING:
    from app.drift.history import History

__all__ = ("EVENTS_PATH", "Page", "until_next_reading")

EVENTS_PATH = "/page/events"


class Page:
    """Provide the routes of the page, including the metrics under the paths of GRPS.

    Args:
        engine: source of the metrics.
        admin: whether the page can load and unload models; None for browsers on this machine only (`Control`).
        reach: proxies to protocols on other ports.
        chariot_protocol: the Chariot protocol that is served on Chariot's paths.
        whole: False for only the metrics, under the paths of GRPS.
        recorded: whether recordings can be shown.
        drift: evaluated windows; None if no model is monitored for drift.
        access: authorization; None allows everything.
    """

    def __init__(
        self,
        engine: Engine,
        admin: bool | None = None,
        *,
        reach: Reach | None = None,
        chariot_protocol: str = "chariot-v2-kserve",
        whole: bool = True,
        recorded: bool = False,
        drift: "History | None" = None,
        access: HttpAccess | None = None,
    ) -> None:
        self.events = Events(engine)
        self.reach = reach or Reach()
        self._engine = engine
        self._chariot_protocol = chariot_protocol
        self._whole = whole
        self._access = access or HttpAccess(None)
        self._control = Control(engine.repository, admin, access)
        self._files = read_files()
        self._drift = drift
        optional = [name for name, enabled in (("recorded", recorded), ("drift", drift is not None)) if enabled]
        views = ["all", *optional] if whole else ["metrics"]
        self._shell = shell("", views)
        self._shell_of_grps = shell("../../../", views, opens="metrics")

    def answer(self, request: HttpRequest) -> Response[bytes] | None:
        """Return the page if the request to ``/`` comes from a browser, otherwise None."""
        return respond(self._shell, request) if self.is_wanted(request) else None

    def is_wanted(self, request: HttpRequest) -> bool:
        """Return whether a request to ``/`` comes from a browser that should get the page."""
        return self._whole and wants_html(request.headers.get("accept", ""))

    def stop(self) -> None:
        """Close all event streams, so that open pages do not delay the shutdown."""
        self.events.stop()

    @property
    def handlers(self) -> list[HTTPRouteHandler | ASGIRouteHandler]:
        """Return the handlers of all paths except ``/``, which also serves other clients."""
        files, engine, grps_shell = self._files, self._engine, self._shell_of_grps

        @get("/page/{name:str}", sync_to_thread=False, opt=needs("read"))
        def show_file(request: HttpRequest) -> Response[bytes]:
            file = files.get(request.path_params["name"])
            if file is None:
                raise NotFoundException
            return respond(file, request)

        @get("/grps/v1/monitor/metrics", sync_to_thread=False, opt=needs("read"))
        def show_page_of_grps(request: HttpRequest) -> Response[bytes]:
            return respond(grps_shell, request)

        @get("/grps/v1/monitor/series", sync_to_thread=True, opt=needs("read"))
        def show_series(request: HttpRequest) -> Response[Any]:
            found = read_series(engine.trends, request.query_params.get("name", ""))
            if found is None:
                return Response("key not found", media_type="text/html")
            return Response(msgspec.json.encode(found), media_type="application/json;charset=utf-8")

        events = asgi(EVENTS_PATH, copy_scope=True, opt=needs("read"))(self.events)
        metrics = [show_file, show_page_of_grps, show_series, events]
        return [*metrics, *self._views, *self._control.handlers, *self.reach.handlers] if self._whole else metrics

    @property
    def _views(self) -> list[HTTPRouteHandler]:
        """Return the handlers for the views other than the metrics."""

        @get("/page/models.json", sync_to_thread=True, opt=needs("read"))
        def show_catalogue() -> Response[bytes]:
            found = make_catalogue(
                self._engine.registry, self._chariot_protocol, self.reach.ports, asks=self._access.asks
            )
            return Response(msgspec.json.encode(found), media_type="application/json", headers=HEADERS)

        @get("/page/samples/{name:str}", sync_to_thread=True, opt=needs("read"))
        def show_sample(request: HttpRequest) -> Response[bytes]:
            file = read_sample(request.path_params["name"])
            if file is None:
                raise NotFoundException
            return respond(file, request)

        @get("/page/drift.json", sync_to_thread=True, opt=needs("read"))
        def show_drift() -> Response[bytes]:
            found = None if self._drift is None else self._drift.windows()
            return Response(msgspec.json.encode(found or {}), media_type="application/json", headers=HEADERS)

        return [show_catalogue, show_sample, show_drift]

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None]:
        """While entered, sample the process metrics once a second."""
        task = asyncio.create_task(self._measure())
        try:
            yield
        finally:
            self.stop()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _measure(self) -> None:
        engine, meter = self._engine, CpuMeter()
        while True:
            await asyncio.sleep(until_next_reading(engine.trends.age))
            engine.trends.read(
                Readings(in_flight=engine.in_flight, waiting=engine.waiting, cpu=meter.read(), memory=resident_bytes())
            )


def until_next_reading(age: float) -> float:
    """Return the seconds until the middle of the next second, so that timer jitter never samples a second twice."""
    return int(age) + 1.5 - age
