"""The protocols of GRPS: HTTP on the main port, and gRPC."""

from app.core.hooks import Protocols
from app.core.settings.server import ServerSettings
from app.plugins.grps.routes import Grps
from app.plugins.grps.servicer import GrpsGrpc


def protocols(_: ServerSettings) -> Protocols:
    """Return both protocols."""
    return Protocols(http=(Grps(),), grpc=(GrpsGrpc(),))
