"""Create applications and servers with authentication, and keys for them."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.hooks import Parts
from app.core.server.auth.access_control import AccessControl
from app.core.server.auth.api_keys import ApiKey, ApiKeys, read_keys
from app.core.server.auth.audit import RejectionLog
from app.core.server.auth.http_access import HttpAccess
from app.core.server.auth.rate_limiter import RateLimiter
from app.core.server.auth.watched_file import WatchedFile
from app.core.server.http.asgi import Entry
from app.core.settings.server import ServerSettings
from app.plugins.access.keys.key_file import add_key
from app.plugins.grps.monitor import Monitor
from app.plugins.recording.inferences import Inferences
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.servers.apps import MAX_REQUEST_BYTES, app_with_parts, page_of
from tests.support.servers.grpc_server import build_engine

_OWNERS: Mapping[str, Sequence[Any]] = {
    "camera": ["infer"], "screen": ["read"], "annotator": ["label"], "operator": ["admin"],
    "owner": ["infer", "read", "admin"],
}  # fmt: skip
INFER_KEY, READ_KEY, LABEL_KEY, ADMIN_KEY, OWNER_KEY = (f"key-of-the-{owner}" for owner in _OWNERS)
"""Real keys are random; fixed keys let a test find them in logs and responses."""

KEYS = {
    f"key-of-the-{owner}": ApiKey(name=owner, sha256="0" * 64, permissions=tuple(permissions))
    for owner, permissions in _OWNERS.items()
}


def write_key_file(folder: Path) -> Path:
    path = folder / "keys.json"
    for key, properties in KEYS.items():
        add_key(path, key, properties)
    return path


def bearer_header(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def access_with_keys(folder: Path, metrics: CollectorRegistry | None = None) -> AccessControl:
    """Return the access rules of `KEYS`. Its clock advances enough between rejections for each to be logged."""
    keys = WatchedFile(write_key_file(folder), lambda content: ApiKeys(read_keys(content)), "--api-keys")
    return AccessControl(
        keys, None, RateLimiter(), RejectionLog(metrics or CollectorRegistry(), clock=itertools.count().__next__)
    )


def authenticated_app(
    access: AccessControl | None,
    engine: Engine | None = None,
    *,
    metrics: CollectorRegistry | None = None,
    origins: Sequence[str] = (),
    protocol: str | None = None,
) -> Litestar:
    """Return the application with every route on its main port."""
    engine = engine or build_engine(("detector",))
    http_access = HttpAccess(access)
    inferences = Inferences(None, "Nothing is recorded here")
    recordings = Parts(handlers=inferences.handlers, operations=inferences.operations, costly_prefixes=("/inferences",))
    return app_with_parts(
        engine,
        page_of(engine, access=http_access),
        Monitor(engine, metrics or CollectorRegistry()).parts,
        recordings,
        protocol=protocol or ServerSettings().chariot_protocol,
        metrics=metrics,
        max_bytes=MAX_REQUEST_BYTES,
        access=http_access,
        entry=Entry(origins=origins),
    )


def http_client(app: Litestar) -> TestClient[Litestar]:
    return TestClient(app, base_url="http://127.0.0.1:8080")


def inference_body() -> dict[str, Any]:
    return {"inputs": [image_input(encode_base64(encode_image(rectangle())))]}
