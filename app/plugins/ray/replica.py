"""The deployment that runs models: each replica loads models on demand, and runs them in batches."""

import asyncio
import hashlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from app.core.assembly.models import load
from app.core.engine.models.servable import Servable, call_model
from app.core.engine.remote import Binding, Failure
from app.core.server.process_setup import configure_process
from app.core.settings.model import ModelError, ModelSource
from tasks.inference.error import ErrorKind, InferenceError

# The type checker's environment has no Ray, so its names are Any.
_serve: Any = importlib.import_module("ray.serve")


Outcome = Sequence[Any] | Failure
"""A prediction for each input, or the error."""


def run_batch(
    model: Callable[[Sequence[Any]], Sequence[Any]], calls: Sequence[Sequence[Any]]
) -> Sequence[Sequence[Any] | Failure]:
    """Answer several calls with one call of the model. If it fails, answer each call separately."""
    try:
        answers = iter(call_model(model, [value for call in calls for value in call]))
    except InferenceError as error:
        if len(calls) == 1:
            return [Failure.from_error(error)]
        return [run_batch(model, [call])[0] for call in calls]
    return [[next(answers) for _ in call] for call in calls]


def _not_ready(error: ModelError) -> Failure:
    return Failure(ErrorKind.MODEL_NOT_READY, str(error))


def model_id(source: ModelSource) -> str:
    """Return the id by which Ray routes calls to replicas that already hold the model.

    Any difference in the source, such as another threshold in its settings, gives another id.
    """
    # Python's hash() of a string differs between processes.
    return f"{source.name}/{source.version}@{hashlib.sha256(repr(source).encode()).hexdigest()[:16]}"


def model_replica(models: int, batch_size: int, batch_wait_seconds: float) -> type:
    """Return the class of the deployment. It is made at run time, because Ray's decorators need the numbers.

    A replica drops its least recently used model when it has more than `models`. The first call of a batch waits for
    others.
    """

    class Models:
        """A replica. Calls carry the model's source, so that a new or restarted replica can load it."""

        def __init__(self) -> None:
            configure_process()
            self._sources: dict[str, ModelSource] = {}

        async def bind(self, source: ModelSource) -> Binding | Failure:
            """Load a model, and return what the ingress needs."""
            try:
                return Binding.of(await self._servable(source))
            except ModelError as error:
                return _not_ready(error)

        @_serve.batch(max_batch_size=batch_size, batch_wait_timeout_s=batch_wait_seconds)
        async def predict(self, sources: list[ModelSource], inputs: list[Sequence[Any]]) -> list[Outcome]:
            """Return the outcome of each call of a batch that Ray collected."""
            outcomes: list[Outcome] = [()] * len(sources)
            for requested_id in dict.fromkeys(map(model_id, sources)):
                indices = [index for index, source in enumerate(sources) if model_id(source) == requested_id]
                try:
                    servable = await self._servable(sources[indices[0]])
                except ModelError as error:
                    answers: Sequence[Outcome] = [_not_ready(error)] * len(indices)
                else:
                    answers = await asyncio.to_thread(run_batch, servable.model, [inputs[index] for index in indices])
                for index, answer in zip(indices, answers, strict=True):
                    outcomes[index] = answer
            return outcomes

        @_serve.multiplexed(max_num_models_per_replica=models)
        async def load(self, name: str) -> Servable:
            """Load the model with the given `model_id`."""
            return await asyncio.to_thread(load, self._sources[name])

        async def _servable(self, source: ModelSource) -> Servable:
            name = model_id(source)
            self._sources[name] = source
            return await self.load(name)

    return Models
