"""What the codecs of REST and gRPC share: they find the model, and measure the time that it takes."""

import time
from collections.abc import Sequence

from app.engine.models.registry import Registration, Registry
from app.protocols.tensorflow_serving.lookup import find_ready_version
from app.protocols.tensorflow_serving.paths import ModelTarget
from tasks.inference.error import ErrorKind
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
        platform: the platform of the model; empty before the request is decoded.
        model_nanoseconds: nanoseconds between decoding and encoding.
    """

    def __init__(self, registry: Registry, target: ModelTarget, loading_error: ErrorKind) -> None:
        self.target = target
        self.inputs: Sequence[InputTensor] = ()
        self.platform = ""
        self.model_nanoseconds = 0
        self._registry = registry
        self._loading_error = loading_error
        self._started = 0

    def find_model(self) -> Registration:
        """Return the requested version of the model.

        Raises:
            InferenceError: as `find_ready_version`.
        """
        return find_ready_version(self._registry, self.target, self._loading_error)

    def request(self, registration: Registration, inputs: tuple[InputTensor, ...]) -> InferenceRequest:
        """Return the neutral request, and start the clock."""
        self.inputs = inputs
        self.platform = registration.ready_servable().description.platform
        self._started = time.perf_counter_ns()
        return InferenceRequest(
            id="", model_name=registration.source.name, model_version=registration.source.version, inputs=inputs
        )

    def stop_clock(self) -> None:
        """Set `model_nanoseconds`."""
        self.model_nanoseconds = time.perf_counter_ns() - self._started
