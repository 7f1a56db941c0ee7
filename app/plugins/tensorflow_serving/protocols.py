"""TensorFlow Serving's protocols: REST on a port of its own, and gRPC, which also has a second port."""

from app.core.hooks import Port, Protocols
from app.core.server.http.cross_site import ANY_ORIGIN, parse_origins
from app.core.settings.server import ServerSettings
from app.plugins.tensorflow_serving.grpc.servicer import TensorFlowModelService, TensorFlowPredictionService
from app.plugins.tensorflow_serving.routes import TensorFlowServing
from app.plugins.tensorflow_serving.settings import TensorFlowServingSettings


def protocols(settings: ServerSettings) -> Protocols:
    """Return the protocols, unless they are disabled.

    Raises:
        SettingsError: if an origin is invalid.
    """
    options = settings.of(TensorFlowServingSettings)
    if not options.tensorflow_serving:
        return Protocols()
    origins = [ANY_ORIGIN]
    if options.tensorflow_serving_cors.strip() != ANY_ORIGIN:
        origins = parse_origins("--tensorflow-serving-cors", options.tensorflow_serving_cors, ", or * for any")
    listener = TensorFlowServing(any_origin=ANY_ORIGIN in origins, loading_status=options.loading_status)
    return Protocols(
        ports=(Port(protocol=listener, port=options.tensorflow_serving_port, origins=origins),),
        grpc=(TensorFlowPredictionService(loading_status=options.loading_status), TensorFlowModelService()),
        grpc_ports={"TensorFlow Serving gRPC": options.tensorflow_grpc_port},
    )
