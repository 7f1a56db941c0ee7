"""Create the application of the main port with the parts of plugins."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from litestar import Litestar
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.hooks import Parts
from app.core.protocols.protocol import HttpListener
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.asgi import Entry, create_app
from tests.support.protocols import main_port_protocols


def app_with_parts(
    engine: Engine,
    *parts: Parts,
    protocol: str = "chariot-v2-kserve",
    metrics: CollectorRegistry | None = None,
    max_bytes: int = 2_000_000,
    listeners: Sequence[HttpListener] = (),
    access: HttpAccess | None = None,
    entry: Entry | None = None,
) -> Litestar:
    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for part in parts:
                if part.lifespan is not None:
                    await stack.enter_async_context(part.lifespan())
            yield

    return create_app(
        engine,
        main_port_protocols(protocol),
        metrics or CollectorRegistry(),
        max_bytes,
        lifespan,
        listeners,
        next((part.home for part in parts if part.home is not None), None),
        access,
        entry,
        [handler for part in parts for handler in part.handlers],
        [operation for part in parts for operation in part.operations],
        [prefix for part in parts for prefix in part.costly_prefixes],
    )
