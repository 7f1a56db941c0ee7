"""The JSON types of KServe's V1 protocol."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

_STARTED = int(time.time())


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body.

    Attributes:
        instances: the inputs; each gets one prediction.
        inputs: another name for `instances`.
        parameters: defaults for the parameters of the instances.
    """

    instances: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    inputs: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, msgspec.Raw] | None = None


class WireResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response's body.

    Attributes:
        predictions: one for each instance, in order.
        parameters: the metadata of the request, if any: a list parallel to the instances, or one object.
    """

    predictions: Sequence[Any]
    parameters: Sequence[Mapping[str, object]] | Mapping[str, object] | msgspec.UnsetType = msgspec.UNSET


class WireModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model; `created` is when the server started, in seconds since 1970."""

    id: str
    object: str = "model"
    created: int = _STARTED
    owned_by: str = "charioteer"


class ListedModels(Protocol):
    """Provided by plugins: returns what ``GET /v1/models`` lists as `data`."""

    def __call__(self) -> Sequence[WireModel]: ...


class WireModels(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the models; for OpenAI's clients also the models that answer with text."""

    models: Sequence[str]
    object: str = "list"
    data: Sequence[WireModel] = ()
