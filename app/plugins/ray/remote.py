"""A model in another process: calls go through Ray, and are repeated when their replica is lost."""

import importlib
import logging
import time
from collections.abc import Sequence
from typing import Any

from app.core.engine.cancellation import raise_if_cancelled
from app.core.engine.remote import Binding, Failure
from app.core.engine.scheduling.thread_pool import release_worker
from app.core.settings.model import ModelError, ModelSource
from app.plugins.ray.replica import model_id
from tasks.inference.error import ErrorKind, InferenceError, model_failed

_exceptions: Any = importlib.import_module("ray.exceptions")
_serve_exceptions: Any = importlib.import_module("ray.serve.exceptions")

_REPLICA_LOST: tuple[type[Exception], ...] = (
    _exceptions.RayActorError,
    _exceptions.WorkerCrashedError,
    _serve_exceptions.ReplicaUnavailableError,
)
"""The replica ended or was unreachable, so the call has no answer."""

_POLL_SECONDS = 0.2
"""Interval at which a waiting call checks for cancellation."""

_logger = logging.getLogger(__name__)


class RemoteModel:
    """A model of any task type, called through a deployment's handle. Raise ModelError when it cannot be served.

    Args:
        handle: of the deployment; created once, because that is slow.
        timeout_seconds: maximum seconds for a call, with queueing and retries.
        retries: maximum number of retries after a lost replica.

    Attributes:
        binding: of the model, which a replica has loaded.
    """

    def __init__(self, source: ModelSource, handle: Any, timeout_seconds: float, retries: int) -> None:
        self._source = source
        self._handle = handle.options(multiplexed_model_id=model_id(source))
        self._seconds = timeout_seconds
        self._retries = retries
        try:
            binding: Binding | Failure = self._request("bind", source)
        except InferenceError as error:
            raise ModelError(error.message) from error
        if isinstance(binding, Failure):
            raise ModelError(binding.message)
        self.binding = binding

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        outcome: Any = self._request("predict", self._source, list(inputs))
        if isinstance(outcome, Failure):
            raise outcome.to_error()
        return outcome

    def _request(self, method: str, *arguments: object) -> Any:
        deadline = time.monotonic() + self._seconds
        with release_worker():
            for attempt in range(self._retries + 1):
                response = getattr(self._handle, method).remote(*arguments)
                try:
                    return self._result(response, deadline)
                except _REPLICA_LOST as error:
                    fields = {"model": self._source.name, "attempt": attempt + 1, "reason": type(error).__name__}
                    _logger.warning("model replica lost", extra=fields)
                except _serve_exceptions.BackPressureError:
                    message = "The model's replicas are at their limit of calls; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message) from None
                except _serve_exceptions.DeploymentUnavailableError as error:
                    raise InferenceError(ErrorKind.MODEL_NOT_READY, f"The model has no replicas: {error}") from None
        raise model_failed(f"{self._retries + 1} replicas of the model were lost during the same call")

    def _result(self, response: Any, deadline: float) -> Any:
        """Return the result of a call; raise after its deadline, or when the request is cancelled."""
        try:
            while True:
                remaining = deadline - time.monotonic()
                try:
                    return response.result(timeout_s=max(0.0, min(remaining, _POLL_SECONDS)))
                except TimeoutError:
                    raise_if_cancelled()
                if remaining <= _POLL_SECONDS:
                    message = f"The model did not answer within {self._seconds:g} s"
                    raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message)
        except InferenceError:
            response.cancel()
            raise
