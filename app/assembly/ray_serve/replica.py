"""The deployment that runs models: each of its replicas loads what it is asked for, and answers in batches."""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any

from app.assembly.models import load
from app.assembly.ray_serve.batching import together
from app.assembly.ray_serve.exchange import Binding, NotLoaded, Outcome, binding_of, model_id, model_of
from app.engine.servable import Servable
from app.server.tuning import tune_process
from app.settings.model import ModelError, ModelSource

__all__ = ("model_replica",)

# Ray is no dependency of the type checker's environment: what comes from it is Any, said in one place a module.
_serve: Any = importlib.import_module("ray.serve")


def model_replica(models: int, batch_size: int, batch_wait_seconds: float) -> type:
    """The class of the deployment. Ray's decorators want its numbers when it is made.

    Args:
        models: so many a replica holds at a time; the one that was not asked for longest goes first.
        batch_size: so many calls are put together at most.
        batch_wait_seconds: so long the first of them waits for others.
    """

    class Models:
        """Called with sources, so that a replica that was just started, or replaced, knows what to load."""

        def __init__(self) -> None:
            tune_process()
            self._sources: dict[str, ModelSource] = {}

        async def bind(self, source: ModelSource) -> Binding | NotLoaded:
            """Load a model, and say what the ingress needs to know of it."""
            try:
                return binding_of(await self._servable(source))
            except ModelError as error:
                return NotLoaded(str(error))

        @_serve.batch(max_batch_size=batch_size, batch_wait_timeout_s=batch_wait_seconds)
        async def predict(self, sources: list[ModelSource], inputs: list[Sequence[Any]]) -> list[Outcome]:
            """The outcome of each of several calls, which Ray has put together."""
            outcomes: list[Outcome] = [()] * len(sources)
            for source in dict.fromkeys(map(model_id, sources)):
                places = [index for index, each in enumerate(sources) if model_id(each) == source]
                try:
                    model = model_of(await self._servable(sources[places[0]]))
                except ModelError as error:
                    answers: Sequence[Outcome] = [NotLoaded(str(error))] * len(places)
                else:
                    answers = await asyncio.to_thread(together, model, [inputs[each] for each in places])
                for place, answer in zip(places, answers, strict=True):
                    outcomes[place] = answer
            return outcomes

        @_serve.multiplexed(max_num_models_per_replica=models)
        async def load(self, name: str) -> Servable:
            """The model that a `model_id` stands for."""
            return await asyncio.to_thread(load, self._sources[name])

        async def _servable(self, source: ModelSource) -> Servable:
            name = model_id(source)
            self._sources[name] = source
            return await self.load(name)

    return Models
