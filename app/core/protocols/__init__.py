"""The wire protocols. Each folder is one protocol: its wire types, its codec (two pure functions) and its routes."""

from collections.abc import Mapping, Sequence

from app.core.protocols.chariot_v2.routes import ChariotV2
from app.core.protocols.chariot_v2_kserve.routes import ChariotV2KServe
from app.core.protocols.grpc_protocol import GrpcProtocol
from app.core.protocols.kserve_v1.routes import KServeV1
from app.core.protocols.kserve_v2.routes import KServeV2
from app.core.protocols.kserve_v2.servicer import KServeV2Grpc
from app.core.protocols.protocol import HttpListener, HttpProtocol
from app.core.settings.network import ListeningSettings
from app.plugins.grps.routes import Grps
from app.plugins.grps.servicer import GrpsGrpc
from app.plugins.openai.routes import OpenAI
from app.plugins.tensorflow_serving.grpc.servicer import TensorFlowModelService, TensorFlowPredictionService
from app.plugins.tensorflow_serving.routes import TensorFlowServing

__all__ = ("GRPC_PROTOCOLS", "LISTENERS", "PROTOCOLS", "grpc_protocols", "listeners_on_ports", "main_port_protocols")

PROTOCOLS: tuple[HttpProtocol, ...] = (ChariotV2KServe(), ChariotV2(), KServeV2(), KServeV1(), Grps(), OpenAI())
"""The protocols of the server's main port."""

_CHARIOT_PROTOCOLS = frozenset({ChariotV2.name, ChariotV2KServe.name})


def main_port_protocols(chariot_protocol: str) -> Sequence[HttpProtocol]:
    """Return the protocols of the main port.

    Chariot's protocols share paths; only `chariot_protocol` is included.
    """
    return [
        protocol
        for protocol in PROTOCOLS
        if protocol.name == chariot_protocol or protocol.name not in _CHARIOT_PROTOCOLS
    ]


def grpc_protocols(settings: ListeningSettings) -> Sequence[GrpcProtocol]:
    """Return the enabled gRPC services."""
    shared: Sequence[GrpcProtocol] = (KServeV2Grpc(), GrpsGrpc())
    if not settings.tensorflow_serving:
        return shared
    return (*shared, TensorFlowPredictionService(loading_status=settings.loading_status), TensorFlowModelService())


def listeners_on_ports(settings: ListeningSettings) -> Mapping[HttpListener, int]:
    """Return the enabled protocols with their own port, and their ports."""
    if not settings.tensorflow_serving:
        return {}
    any_origin = settings.tensorflow_serving_cors.strip() == "*"
    listener = TensorFlowServing(any_origin=any_origin, loading_status=settings.loading_status)
    return {listener: settings.tensorflow_serving_port}


LISTENERS: tuple[HttpListener, ...] = tuple(listeners_on_ports(ListeningSettings()))
"""The protocols with a port of their own, as they are by default."""

GRPC_PROTOCOLS: tuple[GrpcProtocol, ...] = tuple(grpc_protocols(ListeningSettings()))
"""The gRPC services, which share all gRPC ports, as they are by default."""
