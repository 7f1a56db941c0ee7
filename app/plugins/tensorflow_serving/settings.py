"""Options of `serve`, and settings of models, for TensorFlow Serving's protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.types import Port

from app.core.settings.environment import NETWORK, environment
from app.core.settings.network import DefaultPort

_REST_PORT, _GRPC_PORT = DefaultPort(8501), DefaultPort(8500)


class LabelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a model for the clients of TensorFlow Serving.

    Attributes:
        version_labels: versions by label, such as "stable".
    """

    version_labels: Mapping[str, str] = {}


@Parameter(name="*", group=NETWORK)
@dataclass(frozen=True, kw_only=True)
class TensorFlowServingSettings:
    """TensorFlow Serving's protocol and its ports."""

    tensorflow_serving: Annotated[bool | None, environment("CHARIOTEER_TENSORFLOW_SERVING")] = None
    """Whether to serve TensorFlow Serving's protocol: its REST API, and gRPC unless that is off; by default only if one
    of its ports is set."""

    tensorflow_serving_port: Annotated[Port, environment("CHARIOTEER_TENSORFLOW_SERVING_PORT")] = _REST_PORT
    """Port for the REST API of TensorFlow Serving; 0 for any free one."""

    tensorflow_grpc_port: Annotated[Port, environment("CHARIOTEER_TENSORFLOW_GRPC_PORT")] = _GRPC_PORT
    """Second gRPC port, where TensorFlow Serving's clients expect it; 0 for any free one."""

    tensorflow_serving_cors: Annotated[str, environment("CHARIOTEER_TENSORFLOW_SERVING_CORS")] = ""
    """Origins whose web pages may send requests to the REST API of TensorFlow Serving and read responses, separated by
    commas; * for any."""
