"""What the plugin adds to a server: REST on a port of its own, gRPC, which also has a second port, and labels."""

from collections.abc import Sequence

from app.core.hooks import Host, Parts, Port, Protocols
from app.core.server.http.request_rules import ANY_ORIGIN, parse_origins
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.network import DefaultPort
from app.core.settings.server import ServerSettings
from app.plugins.tensorflow_serving.settings import LabelSettings, TensorFlowServingSettings


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
    listener = TensorFlowServing(any_origin=ANY_ORIGIN in origins)
    return Protocols(
        ports=(Port(protocol=listener, port=port, origins=origins),),
        grpc=(TensorFlowPredictionService(), TensorFlowModelService()),
        grpc_ports={"TensorFlow Serving gRPC": grpc_port},
    )


def start(host: Host) -> Parts:
    """Check that each label of a model means one version that exists, now and when a model is loaded again.

    Raise ModelError naming the model and the label.
    """
    _check_labels([registration.source for registration in host.engine.registry.registrations])
    host.engine.repository.checks.append(_check_labels)
    return Parts()


def _check_labels(sources: Sequence[ModelSource]) -> None:
    versions = {(source.name, source.version) for source in sources}
    versions_by_label: dict[tuple[str, str], str] = {}
    for source in sources:
        for label, version in source.settings.of(LabelSettings).version_labels.items():
            subject = f"Model {source.name!r}: version_labels"
            if (source.name, version) not in versions:
                raise ModelError(f"{subject}: There is no version {version!r} to be called {label!r}")
            if versions_by_label.setdefault((source.name, label), version) != version:
                raise ModelError(f"{subject}: Its versions disagree on {label!r}")
