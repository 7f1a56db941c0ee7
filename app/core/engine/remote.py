"""Messages between a server and another process that runs a model, over a socket or through Ray."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec

from app.core.engine.models.servable import Servable, explains_itself
from metadata.model import ModelMetadata
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import Model


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A servable without its model.

    Attributes:
        task: task of the model.
        description: metadata of the model.
        defaults: default request parameters from the settings.
        streams: whether the model streams its answers.
        explains: whether the model explains its own answers.
        downscale: as in `Servable`.
        tensor_view: of its tensor view, which the same model answers.
    """

    task: Any
    description: ModelMetadata
    defaults: Mapping[str, object]
    streams: bool
    explains: bool
    downscale: Callable[[int, int], float] | None
    tensor_view: "Binding | None"

    @classmethod
    def of(cls, servable: Servable) -> Self:
        return cls(
            task=servable.task,
            description=servable.description,
            defaults=servable.defaults,
            streams=callable(getattr(servable.model, "stream", None)),
            explains=explains_itself(servable.model),
            downscale=servable.downscale,
            tensor_view=None if servable.tensor_view is None else cls.of(servable.tensor_view),
        )

    def servable(self, model: Model[Any, Any]) -> Servable:
        """Return the servable with `model`, which calls the other process."""
        servable = Servable(self.task, model, self.description, self.defaults, self.downscale)
        servable.tensor_view = None if self.tensor_view is None else self.tensor_view.servable(model)
        return servable

    @property
    def interface(self) -> object:
        """Return what must be the same after the model was loaded again."""
        description = self.description
        return description.task_type, list(description.labels), list(description.inputs), list(description.outputs)


class Failure(msgspec.Struct, frozen=True):
    """An `InferenceError` in plain fields, because exceptions of model code may not survive pickling."""

    kind: ErrorKind
    message: str
    path: str = ""
    retry_after: int | None = None

    @classmethod
    def from_error(cls, error: InferenceError) -> Self:
        return cls(error.kind, error.message, error.path, error.retry_after)

    def to_error(self) -> InferenceError:
        return InferenceError(self.kind, self.message, self.path, retry_after=self.retry_after)
