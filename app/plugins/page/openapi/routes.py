"""The routes of the document."""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import get
from litestar.response import Redirect

from app.core.engine.engine import Engine
from app.core.hooks import Parts
from app.core.protocols.protocol import read_operation
from app.core.server.auth.http_access import requires
from app.core.server.http.asgi import ServedOperations
from app.plugins.page.openapi.document import describe_service


class _Alive(msgspec.Struct, frozen=True):
    """The state of the server; models and protocols only for clients with the permission infer."""

    status: str
    models: list[str] = []
    protocols: list[str] = []


class _Healthy(msgspec.Struct, frozen=True):
    """The liveness of the process."""

    status: str


@get("/openapi.json", sync_to_thread=False, opt=requires("read"))
def redirect_to_schema() -> Redirect:
    """Redirect to the document."""
    # The location is relative, so that a proxy can serve the application under any path.
    return Redirect("schema/openapi.json", status_code=307)


_OPERATIONS = (
    read_operation("/", "Liveness, models and protocols of the server", permission="open", answer=_Alive),
    read_operation("/metrics", "Metrics, in Prometheus' text format", answer=bytes, media_types=("text/plain",)),
    read_operation("/healthz", "Liveness of the server", permission="open", answer=_Healthy),
    read_operation("/schema", "This document"),
    read_operation("/schema/openapi.json", "This document"),
)
"""Operations of the server besides its protocols and its page."""


def describing(engine: Engine) -> Parts:
    """Return the routes of the document."""

    @get(["/schema", "/schema/openapi.json"], sync_to_thread=True, opt=requires("read"))
    def show_schema() -> Mapping[str, Any]:
        (served,) = engine.provided.find(ServedOperations)
        return describe_service(served.by_tag(), secured=served.access.requires_credentials)

    return Parts(handlers=(show_schema, redirect_to_schema), operations=_OPERATIONS)
