"""The application over stand-in models, in this process."""

from collections.abc import Iterable

from litestar import Litestar
from prometheus_client import CollectorRegistry

from app.core.hooks import Parts
from app.core.observers.metrics import Metrics
from app.core.observers.request_log import RequestLog
from app.core.server.http.asgi import create_app
from tasks.inference.limits import Limits
from tests.support.protocols import main_port_protocols
from tests.support.servers.grpc_server import MAX_REQUEST_BYTES, build_engine


def build_app(names: Iterable[str], protocol: str, *, loaded: bool = True) -> Litestar:
    """Return the application over the stand-ins called `names`."""
    limits = Limits(max_inputs=64, max_request_bytes=MAX_REQUEST_BYTES)
    engine, metrics = build_engine(names, loaded=loaded, limits=limits), CollectorRegistry()
    engine.attach(Parts(observers=(RequestLog(), Metrics(metrics, engine.registry.known_name))))
    return create_app(engine, main_port_protocols(protocol), metrics, MAX_REQUEST_BYTES)
