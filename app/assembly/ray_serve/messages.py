"""The messages between the ingress and the replicas that run models, pickled by Ray."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable, explanation_methods
from app.settings.model import ModelSource
from tasks.inference.error import ErrorKind, InferenceError

__all__ = ("NotLoaded", "Outcome", "ReplicaBinding", "ReplicaFailure", "binding_of", "model_id")


class ReplicaBinding(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a servable without its model: what the ingress needs to decode requests and encode responses.

    The ingress decodes images at full size, because only the model's graph knows a smaller usable size.

    Attributes:
        task: the model's task.
        description: the model's metadata.
        defaults: default request parameters from the model's settings.
        methods: the `explanation_methods` of the model.
    """

    task: Any
    description: ModelMetadata
    defaults: Mapping[str, object]
    methods: frozenset[str]


class NotLoaded(msgspec.Struct, frozen=True):
    """A model that cannot be served, with the reason."""

    reason: str


class ReplicaFailure(msgspec.Struct, frozen=True):
    """An `InferenceError` as plain fields, because a model's own exceptions may not survive pickling."""

    kind: ErrorKind
    message: str
    path: str

    @classmethod
    def from_error(cls, error: InferenceError) -> "ReplicaFailure":
        """Return the fields of `error`."""
        return cls(error.kind, error.message, error.path)

    def error(self) -> InferenceError:
        """Return the error as an exception."""
        return InferenceError(self.kind, self.message, self.path)


Outcome = Sequence[Any] | ReplicaFailure | NotLoaded
"""A prediction for each input, or the error."""


def model_id(source: ModelSource) -> str:
    """Return the id by which Ray routes calls to replicas that already hold the model.

    Any difference in the source, such as another threshold in its settings, gives another id.
    """
    # Python's hash() of a string differs between processes.
    return f"{source.name}/{source.version}@{hashlib.sha256(repr(source).encode()).hexdigest()[:16]}"


def binding_of(servable: Servable) -> ReplicaBinding:
    """Return what the ingress needs of `servable`."""
    return ReplicaBinding(
        task=servable.task,
        description=servable.description,
        defaults=servable.defaults,
        methods=explanation_methods(servable.model),
    )
