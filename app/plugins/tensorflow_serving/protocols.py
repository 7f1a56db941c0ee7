"""TensorFlow Serving's protocols: REST on a port of its own, and gRPC, which also has a second port."""

from app.core.hooks import Port, Protocols
from app.core.server.http.cross_site import ANY_ORIGIN, parse_origins
from app.core.settings.network import DefaultPort
from app.core.settings.server import ServerSettings
from app.plugins.tensorflow_serving.settings import TensorFlowServingSettings


def protocols(settings: ServerSettings) -> Protocols:
    """Return the protocols if they are enabled, or one of their ports is set.

    Raise SettingsError if an origin is invalid.
    """
    options = settings.of(TensorFlowServingSettings)
    port, grpc_port = options.tensorflow_serving_port, options.tensorflow_grpc_port
    is_enabled = options.tensorflow_serving
    if is_enabled is None:
        is_enabled = not (isinstance(port, DefaultPort) and isinstance(grpc_port, DefaultPort))
    if not is_enabled:
        return Protocols()
    # Import late: other servers start faster.
    from app.plugins.tensorflow_serving.grpc.servicer import TensorFlowModelService, TensorFlowPredictionService
    from app.plugins.tensorflow_serving.routes import TensorFlowServing

    origins = [ANY_ORIGIN]
    if options.tensorflow_serving_cors.strip() != ANY_ORIGIN:
        origins = parse_origins("--tensorflow-serving-cors", options.tensorflow_serving_cors, ", or * for any")
    listener = TensorFlowServing(any_origin=ANY_ORIGIN in origins, loading_status=options.loading_status)
    return Protocols(
        ports=(Port(protocol=listener, port=port, origins=origins),),
        grpc=(TensorFlowPredictionService(loading_status=options.loading_status), TensorFlowModelService()),
        grpc_ports={"TensorFlow Serving gRPC": grpc_port},
    )
