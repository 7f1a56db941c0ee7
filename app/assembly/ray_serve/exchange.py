"""What goes between the ingress and the replicas that run models, pickled by Ray."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from app.engine.description import ModelDescription
from app.engine.servable import BoundServable, Servable
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Binding", "Failure", "NotLoaded", "Outcome", "binding_of", "model_id", "model_of")


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a servable but its model: what the ingress needs to read requests for it and to narrow its answers.

    Pictures are decoded whole there: how small a model wants them, only its graph can tell.

    Attributes:
        task: of the model.
        description: what is known of it.
        defaults: request parameters that its settings give.
    """

    task: Any
    description: ModelDescription
    defaults: Mapping[str, object]


class NotLoaded(msgspec.Struct, frozen=True):
    """A model that cannot be served, with a sentence for its owner."""

    reason: str


class Failure(msgspec.Struct, frozen=True):
    """An `InferenceError` in plain fields: exceptions of a model's own need not survive pickling."""

    kind: ErrorKind
    message: str
    path: str

    @classmethod
    def of(cls, error: InferenceError) -> "Failure":
        """What `error` says."""
        return cls(error.kind, error.message, error.path)

    def error(self) -> InferenceError:
        """The error again."""
        return InferenceError(self.kind, self.message, self.path)


Outcome = Sequence[Any] | Failure | NotLoaded
"""A prediction for each input, or why there are none."""


def model_id(source: ModelSource) -> str:
    """What Ray's routers know a model by: replicas that have it already are asked first.

    A source that differs in anything, be it a threshold of its settings, is another model.
    """
    # Python's own hash of a text is another one in each process.
    return f"{source.name}/{source.version}@{hashlib.sha256(repr(source).encode()).hexdigest()[:16]}"


def binding_of(servable: Servable) -> Binding:
    """What the ingress needs of `servable`.

    Raises:
        ModelError: for a servable that is no task bound to a model.
    """
    bound = _bound(servable)
    return Binding(task=bound.task, description=bound.description, defaults=bound.defaults)


def model_of(servable: Servable) -> Any:
    """The model that `servable` asks.

    Raises:
        ModelError: for a servable that is no task bound to a model.
    """
    return _bound(servable).model


def _bound(servable: Servable) -> BoundServable[Any, Any]:
    if not isinstance(servable, BoundServable):
        raise ModelError(f"{type(servable).__name__} cannot be taken apart for Ray")
    return cast("BoundServable[Any, Any]", servable)
