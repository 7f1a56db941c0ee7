"""Create applications and servers with authentication, and keys for them."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.engine import Engine
from app.protocols import GRPC_PROTOCOLS, LISTENERS, protocols_beside
from app.server.access.access import Access
from app.server.access.http import HttpAccess
from app.server.access.key_file import add_key
from app.server.access.keys import Key, Keys, read_keys
from app.server.access.rates import Rates
from app.server.access.refusals import Refusals
from app.server.access.watched_file import WatchedFile
from app.server.asgi import create_app, create_listener_app
from app.server.grpc import GrpcServer
from app.server.inferences import Inferences
from app.server.page.page import Page
from app.server.page.reach import Reach
from app.settings.server import ServerSettings
from tests.support.chariot import image_input
from tests.support.grpc_server import MAX_REQUEST_BYTES, built
from tests.support.pictures import base64_text, encoded, rectangle

INFER, READ, ADMIN, ALL = ("key-of-the-camera", "key-of-the-screen", "key-of-the-operator", "key-of-the-owner")
"""Real keys are random; fixed keys let a test find them in logs and responses."""

KEYS = {
    INFER: Key(name="camera", sha256="0" * 64, permissions=("infer",)),
    READ: Key(name="screen", sha256="0" * 64, permissions=("read",)),
    ADMIN: Key(name="operator", sha256="0" * 64, permissions=("admin",)),
    ALL: Key(name="owner", sha256="0" * 64, permissions=("infer", "read", "admin")),
}


def key_file(folder: Path) -> Path:
    """Write a file with `KEYS`."""
    path = folder / "keys.json"
    for key, described in KEYS.items():
        add_key(path, key, described)
    return path


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def access_by(folder: Path, metrics: CollectorRegistry | None = None) -> Access:
    """Return the access rules of `KEYS`. Its clock advances enough between refusals for each to be logged."""
    keys = WatchedFile(key_file(folder), lambda content: Keys(read_keys(content)))
    return Access(keys, None, Rates(), Refusals(metrics or CollectorRegistry(), clock=itertools.count().__next__))


def secured(
    access: Access | None,
    engine: Engine | None = None,
    *,
    metrics: CollectorRegistry | None = None,
    origins: Sequence[str] = (),
    dialect: str | None = None,
) -> Litestar:
    """Return the application with every route on its main port, TensorFlow Serving's through the web page."""
    engine = engine or built(("detector",))
    asked = HttpAccess(access)
    beside = create_listener_app(engine, LISTENERS[0], MAX_REQUEST_BYTES, asked)
    # The server does not start: its requests are refused earlier, or cannot be read.
    calls = GrpcServer(
        engine, GRPC_PROTOCOLS, host="127.0.0.1", port=0, max_request_bytes=MAX_REQUEST_BYTES, drain_timeout=1
    )
    page = Page(engine, True, reach=Reach(calls, beside), access=asked)
    inferences = Inferences(None, "Nothing is recorded here")
    protocols = protocols_beside(dialect or ServerSettings().chariot_protocol)
    metrics = metrics or CollectorRegistry()
    return create_app(
        engine,
        protocols,
        metrics,
        MAX_REQUEST_BYTES,
        listeners=LISTENERS,
        page=page,
        inferences=inferences,
        access=asked,
        origins=origins,
    )


def client_of(app: Litestar) -> TestClient[Litestar]:
    return TestClient(app, base_url="http://127.0.0.1:8080")


def inputs() -> dict[str, Any]:
    """Return a valid inference body."""
    return {"inputs": [image_input(base64_text(encoded(rectangle())))]}
