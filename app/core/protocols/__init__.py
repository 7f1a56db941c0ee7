"""The wire protocols. Each folder or module is one protocol: its wire types, its codec and its routes."""

from collections.abc import Mapping

from app.core.hooks import Protocols
from app.core.protocols.chariot_v2 import ChariotV2
from app.core.protocols.chariot_v2_kserve import ChariotV2KServe
from app.core.protocols.kserve_v1.routes import KServeV1
from app.core.protocols.kserve_v2.routes import KServeV2
from app.core.protocols.kserve_v2.servicer import KServeV2Grpc
from app.core.protocols.protocol import HttpProtocol
from app.core.settings.network import ListeningSettings

__all__ = ("CHARIOT_PROTOCOLS", "core_protocols")

CHARIOT_PROTOCOLS: Mapping[str, HttpProtocol] = {
    protocol.name: protocol for protocol in (ChariotV2KServe(), ChariotV2())
}
"""The protocols of Chariot by name. They share paths, so a server has one of them."""


def core_protocols(settings: ListeningSettings) -> Protocols:
    """Return the protocols that a server has without plugins."""
    chariot = CHARIOT_PROTOCOLS[settings.chariot_protocol]
    return Protocols(http=(chariot, KServeV1(), KServeV2()), grpc=(KServeV2Grpc(),))
