"""Settings for ports, addresses and protocols."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from app.settings.environment import environment

__all__ = ("ListeningSettings",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ListeningSettings:
    """Addresses, ports and protocols."""

    host: Annotated[str, environment("CHARIOTEER_HOST", "UVICORN_HOST")] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces, as containers need."""

    allowed_hosts: Annotated[str, environment("CHARIOTEER_ALLOWED_HOSTS")] = ""
    """Accepted names in the Host header besides loopback names, separated by commas; * for any. By default only
    loopback names if the server listens on a loopback address, otherwise any name."""

    port: Annotated[
        int, environment("CHARIOTEER_HTTP_PORT", "PORT", "UVICORN_PORT"), Parameter(validator=Number(gte=0, lte=65535))
    ] = 8080
    """Port to listen on; 0 for any free one."""

    grpc: Annotated[bool, environment("CHARIOTEER_GRPC")] = True
    """Whether to serve gRPC."""

    grpc_port: Annotated[int, environment("CHARIOTEER_GRPC_PORT"), Parameter(validator=Number(gte=0, lte=65535))] = 8081
    """Port for gRPC; 0 for any free one."""

    tensorflow_serving: Annotated[bool, environment("CHARIOTEER_TENSORFLOW_SERVING")] = True
    """Whether to serve the REST API of TensorFlow Serving."""

    tensorflow_serving_port: Annotated[
        int, environment("CHARIOTEER_TENSORFLOW_SERVING_PORT"), Parameter(validator=Number(gte=0, lte=65535))
    ] = 8501
    """Port for the REST API of TensorFlow Serving; 0 for any free one."""

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
