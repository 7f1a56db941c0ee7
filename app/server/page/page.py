"""The page as routes of the server."""

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
    """The metrics page, and what GRPS serves under the same names.

    Args:
        engine: what it shows.
        admin: whether models can be loaded and unloaded with it; None for by browsers on this machine (`Control`).
        reach: ways to what listens beside the main port.
        chariot_protocol: which of Chariot's protocols answers on its paths.
        whole: False for the metrics alone, where GRPS has them.
        recorded: whether there are recordings to show.
        drift: the windows that were judged, None where no model is watched for drift.
        access: who may do what; everybody everything when None.
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
        optional = [name for name, there in (("recorded", recorded), ("drift", drift is not None)) if there]
        views = ["all", *optional] if whole else ["metrics"]
        self._shell = shell("", views)
        self._shell_of_grps = shell("../../../", views, opens="metrics")

    def answer(self, request: HttpRequest) -> Response[bytes] | None:
        """The page, for a request to ``/`` from a browser; None for anybody else's."""
        return respond(self._shell, request) if self.is_wanted(request) else None

    def is_wanted(self, request: HttpRequest) -> bool:
        """Whether a request to ``/`` is a browser's, for the page."""
        return self._whole and wants_html(request.headers.get("accept", ""))

    def stop(self) -> None:
        """Let nobody's open page hold up the end of the server."""
        self.events.stop()

    @property
    def handlers(self) -> list[HTTPRouteHandler | ASGIRouteHandler]:
        """Everything but ``/``, which others than browsers ask for too."""
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
        """What the views beside the metrics ask for."""

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
        """While entered, measure the process once a second."""
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
    """Seconds to the middle of the next second, so that no second has two readings when a timer is early or late."""
    return int(age) + 1.5 - age
