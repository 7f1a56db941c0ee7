"""The wire protocols. Each folder is one: its wire types, its codec (two pure functions) and its routes."""

from app.protocols.chariot_v2.routes import ChariotV2
from app.protocols.chariot_v2_kserve.routes import ChariotV2KServe
from app.protocols.grpc_protocol import GrpcProtocol
from app.protocols.kserve_v2.routes import KServeV2
from app.protocols.kserve_v2.servicer import KServeV2Grpc
from app.protocols.protocol import HttpProtocol

__all__ = ("GRPC_PROTOCOLS", "PROTOCOLS")

PROTOCOLS: tuple[HttpProtocol, ...] = (ChariotV2KServe(), ChariotV2(), KServeV2())
GRPC_PROTOCOLS: tuple[GrpcProtocol, ...] = (KServeV2Grpc(),)
