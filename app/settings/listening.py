"""Where the server listens, and for what."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from app.settings.environment import environment

__all__ = ("ListeningSettings",)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ListeningSettings:
    """Where the server listens."""

    host: Annotated[str, environment("CHARIOTEER_HOST", "UVICORN_HOST")] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface, as containers need."""

    port: Annotated[
        int, environment("CHARIOTEER_HTTP_PORT", "PORT", "UVICORN_PORT"), Parameter(validator=Number(gte=0, lte=65535))
    ] = 8080
    """Port to listen on; 0 for any free one."""

    grpc: Annotated[bool, environment("CHARIOTEER_GRPC")] = True
    """Whether to listen for gRPC too."""

    grpc_port: Annotated[int, environment("CHARIOTEER_GRPC_PORT"), Parameter(validator=Number(gte=0, lte=65535))] = 8081
    """Port to listen on for gRPC; 0 for any free one."""

    tensorflow_serving: Annotated[bool, environment("CHARIOTEER_TENSORFLOW_SERVING")] = True
    """Whether to listen for TensorFlow Serving's REST API too."""

    tensorflow_serving_port: Annotated[
        int, environment("CHARIOTEER_TENSORFLOW_SERVING_PORT"), Parameter(validator=Number(gte=0, lte=65535))
    ] = 8501
    """Port to listen on for TensorFlow Serving's REST API; 0 for any free one."""

    tensorflow_serving_cors: Annotated[bool, environment("CHARIOTEER_TENSORFLOW_SERVING_CORS")] = False
    """Whether pages of any origin may read the answers of TensorFlow Serving's REST API."""

    chariot_protocol: Annotated[
        Literal["chariot-v2-kserve", "chariot-v2"],
        environment("CHARIOTEER_CHARIOT_PROTOCOL", "CHARIOT_INFERENCE_PROTOCOL"),
    ] = "chariot-v2-kserve"
    """Which of Chariot's protocols answers on its paths."""
