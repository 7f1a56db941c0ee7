"""A model that runs in another process: a call goes through Ray, again when the replica that had it is lost."""

import importlib
import logging
import time
from collections.abc import Sequence
from typing import Any

from app.assembly.ray_serve.exchange import Binding, Failure, NotLoaded, Outcome, model_id
from app.engine.interest import check_interest
from app.engine.servable import BoundServable, Servable
from app.engine.workers import waiting_elsewhere
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("RemoteModel", "remote_servable")

_exceptions: Any = importlib.import_module("ray.exceptions")
_serve_exceptions: Any = importlib.import_module("ray.serve.exceptions")

_LOST: tuple[type[Exception], ...] = (
    _exceptions.RayActorError,
    _exceptions.WorkerCrashedError,
    _serve_exceptions.ReplicaUnavailableError,
)
"""The process that had the call is gone, or was not to be reached: nobody else has answered it."""

_GLANCE = 0.2
"""Seconds after which somebody looks whether the sender still waits."""

_logger = logging.getLogger(__name__)


class RemoteModel:
    """A model of any task, called through a deployment's handle.

    Args:
        source: what the replicas load.
        handle: of the deployment; fetched once, because that is dear.
        timeout_seconds: a call may take so long, waiting for a replica and retries included.
        retries: how often a call is repeated whose replica was lost.
    """

    def __init__(self, source: ModelSource, handle: Any, timeout_seconds: float, retries: int) -> None:
        self._source = source
        self._handle = handle.options(multiplexed_model_id=model_id(source))
        self._seconds = timeout_seconds
        self._retries = retries

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        outcome: Outcome = self._asked("predict", self._source, list(inputs))
        if isinstance(outcome, Failure):
            raise outcome.error()
        if isinstance(outcome, NotLoaded):
            raise InferenceError(ErrorKind.MODEL_NOT_READY, outcome.reason)
        return outcome

    def binding(self) -> Binding:
        """Have a replica load the model, and learn what it is.

        Raises:
            ModelError: with a sentence for its owner.
        """
        try:
            answer: Binding | NotLoaded = self._asked("bind", self._source)
        except InferenceError as error:
            raise ModelError(error.message) from error
        if isinstance(answer, NotLoaded):
            raise ModelError(answer.reason)
        return answer

    def _asked(self, method: str, *arguments: object) -> Any:
        until = time.monotonic() + self._seconds
        with waiting_elsewhere():
            for attempt in range(self._retries + 1):
                response = getattr(self._handle, method).remote(*arguments)
                try:
                    return self._awaited(response, until)
                except _LOST as error:
                    fields = {"model": self._source.name, "attempt": attempt + 1, "reason": type(error).__name__}
                    _logger.warning("model replica lost", extra=fields)
                except _serve_exceptions.BackPressureError:
                    message = "The model's replicas have as many calls as they take; try again later"
                    raise InferenceError(ErrorKind.OVERLOADED, message) from None
                except _serve_exceptions.DeploymentUnavailableError as error:
                    raise InferenceError(ErrorKind.MODEL_NOT_READY, f"The model has no replicas: {error}") from None
        message = f"{self._retries + 1} replicas of the model were lost, one after the other, at the same call"
        raise InferenceError(ErrorKind.MODEL_FAILED, message)

    def _awaited(self, response: Any, until: float) -> Any:
        """The result of a call, unless its time is over or nobody waits for it any more."""
        try:
            while True:
                left = until - time.monotonic()
                try:
                    return response.result(timeout_s=max(0.0, min(left, _GLANCE)))
                except TimeoutError:
                    check_interest()
                if left <= _GLANCE:
                    message = f"The model did not answer within {self._seconds:g} s"
                    raise InferenceError(ErrorKind.DEADLINE_EXCEEDED, message)
        except InferenceError:
            response.cancel()
            raise


def remote_servable(model: RemoteModel) -> Servable:
    """The servable whose task runs here, and whose model runs elsewhere.

    Raises:
        ModelError: with a sentence for the model's owner.
    """
    binding = model.binding()
    return BoundServable(binding.task, model, binding.description, binding.defaults)
