"""All endpoints that this plugin adds to V2."""

from collections.abc import Sequence

from app.core.engine.engine import Engine
from app.core.protocols.protocol import Endpoint
from app.plugins.triton.extensions import extension_endpoints
from app.plugins.triton.generate import generate_endpoints


def endpoints(engine: Engine) -> Sequence[Endpoint]:
    """Return the endpoints."""
    return [*generate_endpoints(engine), *extension_endpoints(engine)]
