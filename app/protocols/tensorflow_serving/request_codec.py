"""What the codecs of REST and gRPC share: the model and the inputs of a request."""

from collections.abc import Sequence

from app.engine.models.registry import Registration, Registry
from app.protocols.tensorflow_serving.inputs import map_error_path
from app.protocols.tensorflow_serving.lookup import find_ready_version
from app.protocols.tensorflow_serving.paths import ModelTarget
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import InputTensor

__all__ = ("RequestCodec",)


class RequestCodec:
    """The state of one request.

    Args:
        registry: holds the models.
        target: the requested model.
        loading_error: the kind of error while the model loads.

    Attributes:
        target: the requested model.
        inputs: the decoded inputs; empty before.
    """

    def __init__(self, registry: Registry, target: ModelTarget, loading_error: ErrorKind) -> None:
        self.target = target
        self.inputs: Sequence[InputTensor] = ()
        self._registry = registry
        self._loading_error = loading_error

    @property
    def model_name(self) -> str:
        """Return the name of the requested model."""
        return self.target.model

    def find_model(self) -> Registration:
        """Return the requested version of the model.

        Raises:
            InferenceError: as `find_ready_version`.
        """
        return find_ready_version(self._registry, self.target, self._loading_error)

    def request(self, registration: Registration, inputs: tuple[InputTensor, ...]) -> InferenceRequest:
        """Return the neutral request."""
        self.inputs = inputs
        return InferenceRequest(
            id="", model_name=registration.source.name, model_version=registration.source.version, inputs=inputs
        )

    def map_error_path(self, error: InferenceError) -> InferenceError:
        """Return `error` with its path in terms of the request."""
        return map_error_path(error, self.inputs)
