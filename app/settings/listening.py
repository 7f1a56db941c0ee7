"""Settings for ports, addresses and protocols."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import Port

from app.settings.environment import NETWORK, environment

__all__ = ("ListeningSettings",)


@Parameter(name="*", group=NETWORK)
@dataclass(frozen=True, kw_only=True)
class ListeningSettings:
    """Addresses, ports and protocols."""

    host: Annotated[str, environment("CHARIOTEER_HOST", "UVICORN_HOST", show=True)] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces, as containers need."""

    allowed_hosts: Annotated[str, environment("CHARIOTEER_ALLOWED_HOSTS")] = ""
    """Accepted names in the Host header besides loopback names, separated by commas; * for any. By default only
    loopback names if the server listens on a loopback address, otherwise any name."""

    port: Annotated[Port, environment("CHARIOTEER_HTTP_PORT", "PORT", "UVICORN_PORT", show=True)] = 8080
    """Port to listen on; 0 for any free one."""

    grpc: Annotated[bool, environment("CHARIOTEER_GRPC")] = True
    """Whether to serve gRPC."""

    grpc_port: Annotated[Port, environment("CHARIOTEER_GRPC_PORT", show=True)] = 8081
    """Port for gRPC; 0 for any free one."""

    tensorflow_serving: Annotated[bool, environment("CHARIOTEER_TENSORFLOW_SERVING")] = True
    """Whether to serve TensorFlow Serving's protocol: its REST API, and gRPC unless that is off."""

    tensorflow_serving_port: Annotated[Port, environment("CHARIOTEER_TENSORFLOW_SERVING_PORT")] = 8501
    """Port for the REST API of TensorFlow Serving; 0 for any free one."""

    tensorflow_grpc_port: Annotated[Port, environment("CHARIOTEER_TENSORFLOW_GRPC_PORT")] = 8500
    """Second gRPC port, where TensorFlow Serving's clients expect it; 0 for any free one."""

    tensorflow_serving_cors: Annotated[bool, environment("CHARIOTEER_TENSORFLOW_SERVING_CORS")] = False
    """Whether web pages of any origin may read responses of the REST API of TensorFlow Serving."""

    loading_status: Annotated[Literal[404, 503], environment("CHARIOTEER_LOADING_STATUS")] = 404
    """Status on TensorFlow Serving's port while a model is loading: 404, as TensorFlow Serving does, or 503, which
    clients and gateways retry."""

    chariot_protocol: Annotated[
        Literal["chariot-v2-kserve", "chariot-v2"],
        environment("CHARIOTEER_CHARIOT_PROTOCOL", "CHARIOT_INFERENCE_PROTOCOL"),
    ] = "chariot-v2-kserve"
    """Protocol that is served on Chariot's paths."""
