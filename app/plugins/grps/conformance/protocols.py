"""The protocols of GRPS for `charioteer conform`."""

from app.plugins.conformance.protocol import Protocol
from app.plugins.grps.conformance.checks import GRPC_CHECKS, HTTP_CHECKS

PROTOCOLS = (Protocol("grps", HTTP_CHECKS), Protocol("grps-grpc", GRPC_CHECKS, rpc=True))
